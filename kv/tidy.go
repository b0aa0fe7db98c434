package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redykv/redykv/hlog"
)

// The objects of checkpoints are named by what is in them and a number that no
// other has.
const (
	indexObject    = "index-"
	snapshotObject = "snapshot-"
)

func (st *Store) newObject(kind string) string { return fmt.Sprintf("%s%d", kind, st.sequence.Add(1)) }

func isObject(name string) bool {
	return strings.HasPrefix(name, indexObject) || strings.HasPrefix(name, snapshotObject)
}

// tidy removes what the manifest on the device does not need any more: objects,
// and the log below the oldest state. What cannot be removed now will be later, or
// when the store is opened. The caller's is the turn to make checkpoints: nothing
// is there that a manifest to come will name.
func (st *Store) tidy() (removed []string) {
	if st.isUncertain() { // the device may have a manifest that names other objects
		return nil
	}
	m := st.recorded()
	names, err := st.dev.ListObjects()
	needed := m.Objects()
	for _, name := range names {
		if needed[name] || !isObject(name) {
			continue
		}
		if e := st.dev.RemoveObject(name); e != nil {
			err = errors.Join(err, e)
			continue
		}
		removed = append(removed, name)
	}
	if begin := st.log.Block(m.Begin()); begin > max(st.dev.Begin(), hlog.FirstAddress) {
		e := st.log.Truncate(begin)
		if e == nil {
			st.opts.Events.Truncated(TruncateInfo{Begin: begin})
		}
		err = errors.Join(err, e)
	}
	if err != nil {
		st.opts.Logger.Warn("removing what no checkpoint needs", "err", err)
		st.failed("removing what no checkpoint needs", err)
	}
	return removed
}

// truncate makes the log begin at an address, where a record begins: everything
// below that is still of use is above by now. The device gives the space back as
// soon as no commit or checkpoint that is kept needs it; after an error, with a
// later one.
func (st *Store) truncate(ctx context.Context, begin int64) error {
	st.log.SetBegin(begin)
	if err := st.Commit(ctx); err != nil {
		return err
	}
	st.checkpointing.Lock() // one under way may begin below
	defer st.checkpointing.Unlock()
	st.tidy()
	return nil
}
