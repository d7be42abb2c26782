// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package backupentry serves BackupEntries of type local: it writes the Secret etcd-backup, from which an etcd gets to know
// its bucket, and removes an entry's folder from pkg/backup. Both programs run it.
//
// A name decides about a folder on a node twice, when data is removed and when etcd-druid mounts the bucket by what is in
// the Secret. Therefore names are checked before anything else happens.
package backupentry
