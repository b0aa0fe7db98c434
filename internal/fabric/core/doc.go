// Package core is shared by the providers of package fabric: the send queue of a queue
// pair, the ring of the peer's immediates, the waiter with which an owner parks, questions
// to the peer, the registry of regions, the gate that delays the unmapping of a region
// while peers copy, and the table of Remote handles.
//
// Each type states its owner. "Owner" means the goroutine that a queue pair belongs to.
package core
