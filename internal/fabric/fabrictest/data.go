package fabrictest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
)

// testModel runs random reads and writes from several queue pairs, each on its own part of
// shared regions, and compares them with byte arrays.
func testModel(t *testing.T, open Open) {
	const pairs, stretch, depth, operations = 3, 5000, 32, 4000
	l := connect(t, open, depth)
	regions := make([]fabric.Region, 2)
	for i := range regions {
		var err error
		regions[i], err = l.server.Alloc(pairs * stretch)
		check(t, err)
	}
	var group sync.WaitGroup
	for p := range pairs {
		_, q := l.dial(depth)
		group.Go(func() {
			m := model{q: q, rng: rand.New(rand.NewPCG(1, uint64(p))), base: int64(p * stretch)}
			for _, r := range regions {
				remote, err := q.Import(deadline(t), r.Token())
				if err != nil {
					t.Errorf("import: %v", err)
					return
				}
				m.remotes = append(m.remotes, remote)
				m.want = append(m.want, make([]byte, stretch))
			}
			m.slots = make([]slot, depth)
			if err := m.run(t, operations); err != nil {
				t.Errorf("queue pair %d: %v", p, err)
			}
		})
	}
	group.Wait()
}

// model holds the expected contents of one queue pair's part of each region, once all enqueued
// operations are complete.
type model struct {
	q       fabric.QueuePair
	rng     *rand.Rand
	base    int64
	remotes []fabric.Remote
	want    [][]byte
	slots   []slot // by tag modulo depth
	sent    uint64
	seen    uint64
}

// slot is a pending operation: its buffer and, for a read, the expected bytes.
type slot struct {
	op        fabric.Op
	buf, want []byte
}

func (m *model) run(t *testing.T, operations int) error {
	ctx := deadline(t)
	var done [7]fabric.Completion
	for m.seen < uint64(operations) {
		for range m.rng.IntN(2 * len(m.slots)) {
			if m.sent == uint64(operations) {
				break
			}
			err := m.enqueue()
			if errors.Is(err, fabric.ErrQueueFull) {
				break
			}
			if err != nil {
				return err
			}
		}
		if err := m.q.Submit(); err != nil {
			return err
		}
		if m.seen < m.sent {
			if err := m.q.Wait(ctx); err != nil {
				return err
			}
		}
		for _, c := range done[:m.q.Poll(done[:])] {
			if err := m.complete(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *model) enqueue() error {
	s := &m.slots[m.sent%uint64(len(m.slots))]
	r := m.rng.IntN(len(m.remotes))
	n := 1 + m.rng.IntN(200)
	if m.rng.IntN(20) == 0 {
		n = 1 + m.rng.IntN(len(m.want[r]))
	}
	at := m.rng.IntN(len(m.want[r]) - n + 1)
	held := m.want[r][at : at+n]
	if m.sent-m.seen == uint64(len(m.slots)) {
		// The slot is still in use, so the queue must return ErrQueueFull.
		return m.q.Read(make([]byte, n), m.remotes[r], m.base+int64(at), m.sent)
	}
	buf := make([]byte, n)
	if m.rng.IntN(2) == 0 {
		*s = slot{op: fabric.OpRead, buf: buf, want: bytes.Clone(held)}
		if err := m.q.Read(buf, m.remotes[r], m.base+int64(at), m.sent); err != nil {
			return err
		}
	} else {
		for i := range buf {
			buf[i] = byte(m.rng.Uint32())
		}
		*s = slot{op: fabric.OpWrite, buf: buf}
		if err := m.q.Write(buf, m.remotes[r], m.base+int64(at), m.sent); err != nil {
			return err
		}
		copy(held, buf)
	}
	m.sent++
	return nil
}

func (m *model) complete(c fabric.Completion) error {
	s := m.slots[m.seen%uint64(len(m.slots))]
	switch {
	case c.Tag != m.seen:
		return fmt.Errorf("completion of %d, want %d", c.Tag, m.seen)
	case c.Err != nil:
		return fmt.Errorf("operation %d: %w", c.Tag, c.Err)
	case c.Op != s.op || c.N != len(s.buf):
		return fmt.Errorf("operation %d ended as %+v, want op %d of %d bytes", c.Tag, c, s.op, len(s.buf))
	case s.op == fabric.OpRead && !bytes.Equal(s.buf, s.want):
		return fmt.Errorf("operation %d read %d wrong bytes", c.Tag, len(s.buf))
	}
	m.seen++
	return nil
}

// testOrder reads, overwrites and reads again the same bytes under one doorbell.
func testOrder(t *testing.T, open Open) {
	l := connect(t, open, 8)
	_, r := region(t, l.server, l.here, 64)
	write(t, l.here, []byte("before"), r, 10)
	first, second := make([]byte, 6), make([]byte, 6)
	check(t, l.here.Read(first, r, 10, 1))
	check(t, l.here.Write([]byte("after!"), r, 10, 2))
	check(t, l.here.Read(second, r, 10, 3))
	check(t, l.here.Submit())
	for tag := range uint64(3) {
		expect(t, l.here, tag+1, 6)
	}
	if string(first) != "before" || string(second) != "after!" {
		t.Fatalf("read %q and %q", first, second)
	}
}

func testEmpty(t *testing.T, open Open) {
	l := connect(t, open, 4)
	_, r := region(t, l.server, l.here, 64)
	read(t, l.here, nil, r, 0)
	write(t, l.here, nil, r, 64)
	check(t, l.here.Submit()) // nothing enqueued
}

// testLarge transfers more than any internal buffer holds.
func testLarge(t *testing.T, open Open) {
	const size = 9<<20 + 13
	l := connect(t, open, 4)
	g, r := region(t, l.server, l.here, size)
	src := make([]byte, size)
	rng := rand.New(rand.NewPCG(2, 2))
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	dst, again := make([]byte, size), make([]byte, size)
	check(t, l.here.Write(src, r, 0, 1))
	check(t, l.here.Read(dst, r, 0, 2))
	check(t, l.here.Read(again, r, 0, 3))
	check(t, l.here.Submit())
	for tag := range uint64(3) {
		expect(t, l.here, tag+1, size)
	}
	if !bytes.Equal(src, dst) || !bytes.Equal(src, again) || !bytes.Equal(src, g.Bytes()) {
		t.Fatal("bytes differ")
	}
}

func testBounds(t *testing.T, open Open) {
	l := connect(t, open, 8)
	g, r := region(t, l.server, l.here, 100)
	lying := r
	lying.Size = 1 << 40 // the peer must not rely on the size that this side claims
	for _, c := range []struct {
		r      fabric.Remote
		offset int64
		n      int
	}{
		{r, 93, 8}, {r, 100, 1}, {r, -1, 8}, {r, -8, 8}, {r, 1 << 62, 8}, {r, -1 << 63, 8},
		{r, 1<<63 - 1, 8}, {r, 0, 101}, {r, 101, 0}, {lying, 4096, 8}, {lying, 93, 8}, {r, 0, 1 << 20},
	} {
		ok := make([]byte, 1)
		check(t, l.here.Read(make([]byte, c.n), c.r, c.offset, 1))
		check(t, l.here.Write(bytes.Repeat([]byte{7}, c.n), c.r, c.offset, 2))
		check(t, l.here.Read(ok, r, 99, 3))
		check(t, l.here.Submit())
		for tag := range uint64(2) {
			if d := next(t, l.here); d.Tag != tag+1 || !errors.Is(d.Err, fabric.ErrOutOfBounds) || d.N != 0 {
				t.Errorf("%d bytes at %d: %+v, want out of bounds", c.n, c.offset, d)
			}
		}
		expect(t, l.here, 3, 1)
	}
	if !bytes.Equal(g.Bytes(), make([]byte, 100)) {
		t.Error("a refused write left bytes")
	}
}

func testBadToken(t *testing.T, open Open) {
	l := connect(t, open, 4)
	wantError(t, errorOf(l.here.Import(deadline(t), fabric.Token{1, 2, 3})), fabric.ErrBadToken, "import of an unknown token")
	// A region of this side is not a region of the peer.
	own, err := l.client.Alloc(64)
	check(t, err)
	wantError(t, errorOf(l.here.Import(deadline(t), own.Token())), fabric.ErrBadToken, "import of one's own token")
	for _, h := range []uint32{0, 5, 1 << 31} {
		check(t, l.here.Read(make([]byte, 1), fabric.Remote{Handle: h, Size: 8}, 0, 9))
		check(t, l.here.Submit())
		if c := next(t, l.here); !errors.Is(c.Err, fabric.ErrBadToken) {
			t.Errorf("handle %d: %+v", h, c)
		}
	}
}

func testRevoked(t *testing.T, open Open) {
	l := connect(t, open, 4)
	g, r := region(t, l.server, l.here, 64)
	other, s := region(t, l.server, l.here, 64)
	write(t, l.here, []byte("x"), r, 0)
	token := g.Token()
	check(t, g.Close())
	check(t, g.Close())
	check(t, l.here.Read(make([]byte, 1), r, 0, 1))
	check(t, l.here.Write(make([]byte, 1), r, 0, 2))
	check(t, l.here.Submit())
	for range 2 {
		wantError(t, next(t, l.here).Err, fabric.ErrBadToken, "access to a revoked region")
	}
	wantError(t, errorOf(l.here.Import(deadline(t), token)), fabric.ErrBadToken, "import of a revoked region")
	// A region allocated afterwards is zeroed and cannot be reached by the old handle.
	_, later := region(t, l.server, l.here, 64)
	b := []byte{1}
	read(t, l.here, b, later, 0)
	if b[0] != 0 {
		t.Error("a new region holds old bytes")
	}
	check(t, l.here.Read(b, r, 0, 3))
	check(t, l.here.Submit())
	wantError(t, next(t, l.here).Err, fabric.ErrBadToken, "access by a stale handle")
	write(t, l.here, []byte("y"), s, 0)
	if other.Bytes()[0] != 'y' {
		t.Error("the other region does not answer")
	}
}

// testRevokeUnderLoad closes a region while peers read it continuously.
func testRevokeUnderLoad(t *testing.T, open Open) {
	underLoad(t, open, func(g fabric.Region) { check(t, g.Close()) })
}

// underLoad calls revoke with a region that a peer reads continuously, several times. Afterwards the peer's
// reads fail, and none that has succeeded has returned other bytes.
func underLoad(t *testing.T, open Open, revoke func(fabric.Region)) {
	l := connect(t, open, 16)
	for range 20 {
		g, r := region(t, l.server, l.here, 1<<16)
		for i := range g.Bytes() {
			g.Bytes()[i] = 0xaa
		}
		reading, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- readUntilRevoked(l.here, r, reading) }()
		<-reading
		revoke(g)
		check(t, <-ended)
		l.here.Release(r)
	}
}

func readUntilRevoked(q fabric.QueuePair, r fabric.Remote, reading chan<- struct{}) error {
	dst := make([]byte, 4096)
	var done [1]fabric.Completion
	for i := 0; ; i++ {
		if i == 10 {
			close(reading)
		}
		if err := q.Read(dst, r, int64(i%16)*4096, 1); err != nil {
			return err
		}
		if err := q.Submit(); err != nil {
			return err
		}
		for q.Poll(done[:]) == 0 {
		}
		switch {
		case errors.Is(done[0].Err, fabric.ErrBadToken):
			return nil
		case done[0].Err != nil:
			return done[0].Err
		case dst[0] != 0xaa || dst[4095] != 0xaa:
			return errors.New("a completed read returned other bytes than the region's")
		}
	}
}

// testFence fences a region that two connections know: it has its bytes under another token, and
// neither connection reaches it by the former one.
func testFence(t *testing.T, open Open) {
	l := connect(t, open, 4)
	_, second := l.dial(4)
	g, r := region(t, l.server, l.here, 3000)
	write(t, l.here, []byte("kept"), r, 2000)
	s, err := second.Import(deadline(t), g.Token())
	check(t, err)
	fenced, err := g.Fence()
	check(t, err)
	if string(fenced.Bytes()[2000:2004]) != "kept" || len(fenced.Bytes()) != 3000 || fenced.Token() == g.Token() {
		t.Error("the region has not its bytes under another token")
	}
	for _, known := range []struct {
		q fabric.QueuePair
		r fabric.Remote
	}{{l.here, r}, {second, s}} {
		check(t, known.q.Write([]byte("late"), known.r, 2000, 1))
		check(t, known.q.Submit())
		wantError(t, next(t, known.q).Err, fabric.ErrBadToken, "a write with the former token")
		wantError(t, errorOf(known.q.Import(deadline(t), g.Token())), fabric.ErrBadToken, "import of the former token")
	}
	wantError(t, errorOf(g.Fence()), fabric.ErrClosed, "fenced twice")
	check(t, g.Close())
	again, err := second.Import(deadline(t), fenced.Token())
	check(t, err)
	b := make([]byte, 4)
	read(t, second, b, again, 2000)
	if string(b) != "kept" {
		t.Errorf("the fenced region has %q", b)
	}
	check(t, fenced.Close())
}

// testFenceUnderLoad fences a region while a peer reads it continuously.
func testFenceUnderLoad(t *testing.T, open Open) {
	underLoad(t, open, func(g fabric.Region) {
		fenced, err := g.Fence()
		check(t, err)
		clear(fenced.Bytes()) // a read that completes after this has failed
		t.Cleanup(func() { check(t, fenced.Close()) })
	})
}

func testRelease(t *testing.T, open Open) {
	l := connect(t, open, 4)
	g, r := region(t, l.server, l.here, 64)
	l.here.Release(r)
	l.here.Release(r)
	check(t, l.here.Read(make([]byte, 1), r, 0, 1))
	check(t, l.here.Submit())
	wantError(t, next(t, l.here).Err, fabric.ErrBadToken, "access after release")
	for range 100 {
		again, err := l.here.Import(deadline(t), g.Token())
		check(t, err)
		read(t, l.here, make([]byte, 1), again, 63)
		l.here.Release(again)
	}
}
