package device

// Preparer is a Device for which Start at one tail, and then at a lower one, is not the
// same as the second alone, or that passes Prepare on to a device that it owns.
type Preparer interface {
	// Prepare makes what lies below tail readable before Start, and forgets no more
	// than a Start at tail would.
	Prepare(tail int64) error
}

// Prepare has a device that was not started yet hold what lies below tail ready to be
// read, so that somebody may look whether that is good before Start cuts it off at a
// lower tail. Until then nothing may be written. After an error as much can be read as
// is there.
func Prepare(dev Device, tail int64) error {
	if p, ok := dev.(Preparer); ok {
		return p.Prepare(tail)
	}
	return dev.Start(tail)
}

// Prepare implements Preparer. Until Start the last tier alone is read; it gets what
// others had committed when everything ended.
func (t *Tiered) Prepare(tail int64) error {
	if t.err != nil {
		return t.err
	}
	if err := checkRange(0, tail); err != nil {
		return err
	}
	floors := t.loadFloors()
	last := len(t.tiers) - 1
	t.mu.Lock()
	t.tail, t.preparing = tail, true
	t.mu.Unlock()
	t.shut()
	if err := Prepare(t.last().dev, tail); err != nil {
		return t.lastFailed("prepare", tail, err)
	}
	from := floors[last] - 1
	if from < 0 || from >= tail {
		return nil
	}
	defer t.shut()
	for i, tr := range t.tiers[:last] {
		if tr.refiller == nil && Prepare(tr.dev, tail) == nil {
			tr.floor.Store(tr.alignUp(min(floors[i], tail)))
		}
	}
	return t.catchUp(from, tail)
}

// shut has nobody read the tiers before the last.
func (t *Tiered) shut() {
	for _, tr := range t.tiers[:len(t.tiers)-1] {
		tr.floor.Store(outFloor)
	}
}

// prepared ends what Prepare has begun: the tiers are about to be started.
func (t *Tiered) prepared() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.preparing {
		return
	}
	t.preparing = false
	for _, tr := range t.tiers[:len(t.tiers)-1] {
		if tr.reason == nil { // none that failed meanwhile
			tr.floor.Store(0)
		}
	}
}

// Prepare implements Preparer.
func (f *Faulty) Prepare(tail int64) error { return f.start(tail, Prepare) }
