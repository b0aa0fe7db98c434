package kv

import "context"

// truncate makes the log begin at begin: what is above is made durable first, then
// the store's metadata says where it begins, then the device gives the space back.
// A crash in between finds the one or the other begin, and all that is live from
// there on.
func (st *Store) truncate(ctx context.Context, begin int64) error {
	st.committing.Lock()
	defer st.committing.Unlock()
	if err := st.commit(ctx); err != nil {
		return err
	}
	st.log.SetBegin(begin)
	if err := st.commit(ctx); err != nil {
		return err
	}
	if err := st.log.Truncate(); err != nil {
		return err
	}
	st.opts.Events.Truncated(TruncateInfo{Begin: begin})
	return nil
}
