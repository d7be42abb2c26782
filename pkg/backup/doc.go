// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package backup keeps backup buckets and their entries as folders below one root. The controllers for BackupBuckets and
// BackupEntries are its users; what is inside an entry belongs to etcd-backup-restore, whose provider "local" mounts the
// bucket's folder.
//
// Every path goes through an os.Root, so that neither a name nor a symbolic link leads out of the root: names come from
// objects in a cluster, and pods write below the buckets.
package backup
