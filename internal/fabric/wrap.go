package fabric

import "context"

// wrapper is a Provider that wraps the queue pairs of another one.
type wrapper struct {
	Provider
	// wrap returns the wrapped queue pair. dialled is false if the peer dialled.
	wrap func(q QueuePair, depth int, dialled bool) QueuePair
}

// wrapped returns the wrapped queue pair, which finds holes if the other one does.
func (w *wrapper) wrapped(q QueuePair, depth int, dialled bool) QueuePair {
	outer := w.wrap(q, depth, dialled)
	if holes, ok := q.(HoleFinder); ok {
		return struct {
			QueuePair
			HoleFinder
		}{outer, holes}
	}
	return outer
}

func (w *wrapper) Listen(addr string, depth int) (Listener, error) {
	l, err := w.Provider.Listen(addr, depth)
	if err != nil {
		return nil, err
	}
	return &wrappedListener{Listener: l, wrapper: w, depth: depth}, nil
}

func (w *wrapper) Dial(ctx context.Context, addr string, private []byte, depth int) (QueuePair, error) {
	q, err := w.Provider.Dial(ctx, addr, private, depth)
	if err != nil {
		return nil, err
	}
	return w.wrapped(q, depth, true), nil
}

type wrappedListener struct {
	Listener
	wrapper *wrapper
	depth   int
}

func (l *wrappedListener) Accept(ctx context.Context) (Request, error) {
	r, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return &wrappedRequest{Request: r, listener: l}, nil
}

type wrappedRequest struct {
	Request
	listener *wrappedListener
}

func (r *wrappedRequest) Accept(private []byte, rights Rights) (QueuePair, error) {
	q, err := r.Request.Accept(private, rights)
	if err != nil {
		return nil, err
	}
	return r.listener.wrapper.wrapped(q, r.listener.depth, false), nil
}
