// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package reconciler has the one reconciler for extension objects, which the controllers of type local and the mock provider
// share. It takes the place of those of the extension library (extensions/pkg/controller/KIND), and keeps their contract with
// Gardener: the annotation gardener.cloud/operation, the finalizer, lastOperation, lastError with codes and
// observedGeneration, migration and restoration, forced deletion, and that it leaves objects of failed shoots, of other types
// and of other classes alone.
//
// The reason is what the library spends on an object: two writes for finalizer and annotation, two or more for the status, and
// two of a status that nobody reads when an object goes. Here a creation is two writes (finalizer and annotation; status), a
// reconcile is two (annotation; status), and a deletion is one (finalizer), besides what the actuator sends. Processing is said
// only by an operation that waits for longer than Options.Quiet, and at the start of a reconcile whose result could not be told
// from the last one: in the same second, or if it was asked for without gardener.cloud/timestamp.
//
// What is done for a kind is an Actuator. It changes the status of Operation.Object as it likes; all of that is written in the
// end, together with lastOperation. How an operation goes on is what the Actuator returns:
//   - nil: it has succeeded.
//   - Waiting(cause, retryAfter): nothing is wrong, something is just not there yet. lastOperation is Processing and tells the
//     cause. A watch is to wake the object; retryAfter is for when it does not. No worker is held meanwhile.
//   - a RequeueAfterError of Gardener (pkg/controllerutils/reconciler), with a cause that may have codes: lastOperation is
//     Error, lastError the cause, and it is tried again after that time: what only a user can put right is not retried hot.
//   - any other error: the same, and it is tried again with the back-off of the queue.
//   - Later(retryAfter): nothing was done, and the status stays as it is.
//
// What is said already is not written again. Events that come from these writes are dropped by the predicate, so an object is
// reconciled once for each request of Gardener.
//
// Objects are written by Operation.Apply (server-side apply), Create, Delete and DeleteAll. They remember what the operation has
// written, so that an attempt which a watch has woken sends nothing again, and so that an Actuator reads as a list of the objects
// that are to be there. Ensure is for objects that have to be looked at first, as they may be somebody else's.
//
// What several kinds need besides is here, too: errors that tell a user what to put right, Credentials (Secrets that are held as
// long as an object refers to them) and ManagedResources (what wakes the objects that wait for one).
//
// A kind that has more to say before it goes on, such as what it is about to write elsewhere, calls Operation.SaveStatus.
//
//	type actuator struct{ client client.Client }
//
//	func (a *actuator) Reconcile(ctx context.Context, op *reconciler.Operation[*extensionsv1alpha1.Network]) error {
//		if op.Cluster.Shoot() == nil {
//			return reconciler.Waiting(errors.New("there is no Cluster yet"), time.Minute)
//		}
//		op.Object.Status.IPFamilies = op.Object.Spec.IPFamilies // written in the end
//		return nil
//	}
//	// ... Restore, Migrate, Delete and ForceDelete
//
//	func AddToManager(mgr manager.Manager, shared reconciler.Shared) error {
//		return reconciler.New(reconciler.Options[*extensionsv1alpha1.Network]{
//			Shared: shared, Client: mgr.GetClient(), Types: []string{"local"}, Finalizer: network.FinalizerName,
//			Actuator: &actuator{client: mgr.GetClient()},
//		}).AddToManager(mgr, network.ControllerName)
//	}
package reconciler
