// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package backupbucket serves BackupBuckets of type local: a bucket is a folder of pkg/backup, and a generated Secret
// tells those who back up where the folder is. Both programs run it.
//
// The Secret is there as long as the bucket is. It is watched for that, by an informer of its own which knows just the
// Secrets that this package makes.
package backupbucket
