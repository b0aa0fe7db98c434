package core

import "github.com/redykv/redykv/internal/fabric"

// Requests is the enqueueing half of a queue pair, the same for every provider. Operations
// wait in Sends until Submit. After the connection has ended none is accepted.
type Requests struct {
	Sends   SendQueue
	State   State
	Private []byte // the peer's
}

// PeerPrivate implements fabric.QueuePair, as do the following methods.
func (r *Requests) PeerPrivate() []byte { return r.Private }

// Err returns the reason of the connection's end.
func (r *Requests) Err() error { return r.State.Err() }

func (r *Requests) Read(dst []byte, from fabric.Remote, offset int64, tag uint64) error {
	return r.push(Read, dst, from, offset, 0, tag)
}

func (r *Requests) Write(src []byte, to fabric.Remote, offset int64, tag uint64) error {
	return r.push(Write, src, to, offset, 0, tag)
}

func (r *Requests) WriteImm(src []byte, to fabric.Remote, offset int64, imm uint32, tag uint64) error {
	return r.push(WriteImm, src, to, offset, imm, tag)
}

func (r *Requests) push(kind Kind, buf []byte, remote fabric.Remote, offset int64, imm uint32, tag uint64) error {
	if err := r.State.Err(); err != nil {
		return err
	}
	return r.Sends.Push(kind, buf, remote, offset, imm, tag)
}
