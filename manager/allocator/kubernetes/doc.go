// Package kubernetes launches the VMs of a manager as pods: an allocator
// (github.com/redykv/redykv/manager/allocator) on the Kubernetes API.
//
// A VM is a pod made of the operator's template ([Config]), for a pool of nodes. Its memory is
// requested and limited, so that lent memory is not overcommitted. A pod of a pool with cores
// requests them too and has QoS class Guaranteed; one of a pool without cores asks for no
// processor, and takes memory that is stranded on nodes without free processors.
//
// What happens to a pod is told to the manager:
//
//	not bound yet                            the VM waits, with the scheduler's reason
//	bound to a node                          its place, and the distance by topology labels
//	deletionTimestamp (eviction, preemption) reclaimed, with the rest of the grace period as notice
//	failed, deleted, its node gone           failed
//	on a node that is not ready              unreachable: failed if its server is silent as well
//
// Pods are found by their labels, so a manager that is restarted, or another one of the same
// owner, takes them over, and writes the epoch of its leader on them (fence.go).
package kubernetes
