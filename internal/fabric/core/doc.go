// Package core holds what the providers of package fabric share: the send queue
// behind a queue pair, the ring of the peer's immediates, the way an owner
// parks, the questions that it asks the peer, the registry of regions and the gate
// that lets a region be unmapped while peers may be copying, and the table behind
// Remote handles.
//
// Each type says who owns it. "Owner" is the one goroutine that a queue pair
// belongs to.
package core
