package catalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redykv/redykv/internal/clock"
)

// etcdTerm is a candidacy, and then a term. It ends when the lease is not renewed in time,
// by this machine's clock.
//
// Each Commit is one transaction. It compares the leader's key, the revision of the txn key,
// and the versions of the records, and it writes the txn key. So a transaction of unknown
// outcome can be sent again: the txn key tells whether the first one was applied, and only
// one of them can be.
type etcdTerm struct {
	s      *Etcd
	client *clientv3.Client
	url    string
	lease  clientv3.LeaseID
	ttl    time.Duration
	key    string          // of the candidate, with the lease; set by elect, as is rev
	rev    int64           // revision that created the key
	ctx    context.Context // ended with the term
	cancel context.CancelFunc

	until    atomic.Int64 // end of the lease, in nanoseconds since clockStart
	elected  atomic.Bool
	released chan struct{} // closed when the renewals have ended

	mu      sync.Mutex // held during Commit and Load; guards the following
	mirror  *mirror    // all records; nil: a Commit has changed some, or Load has used it
	last    int64      // revision of the txn key
	number  int64      // number of the last commit
	unknown []Change   // changes of the commit whose outcome is not known; nil: none
}

// clockStart makes times comparable by the monotonic clock.
var clockStart = time.Now()

// newTerm returns a candidacy with a lease, which is renewed from now on.
func (s *Etcd) newTerm(ctx context.Context, client *clientv3.Client, url string) (*etcdTerm, error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	sent := time.Now()
	ttl := max(s.o.LeaseTTL-etcdLate, minLeaseTTL)
	lease, err := client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, classify(err)
	}
	t := &etcdTerm{
		s: s, client: client, url: url, lease: lease.ID, ttl: time.Duration(lease.TTL) * time.Second, released: make(chan struct{}),
	}
	t.ctx, t.cancel = context.WithCancel(s.ctx)
	t.renewed(sent)
	s.trouble.Store(nil)
	s.term.Store(t)
	s.work.Go(t.renew)
	return t, nil
}

func (t *etcdTerm) renewed(sent time.Time) {
	t.until.Store(int64(sent.Add(t.ttl).Sub(clockStart)))
}

// left returns the time until the lease ends.
func (t *etcdTerm) left() time.Duration {
	return time.Duration(t.until.Load()) - time.Since(clockStart)
}

// renew renews the lease until the term ends. A renewal counts from the time when it was
// sent: etcd counts from a later time.
func (t *etcdTerm) renew() {
	defer t.release()
	for clock.Sleep(t.ctx, min(t.ttl/5, t.left())) && t.left() > 0 {
		sent := time.Now()
		ctx, cancel := context.WithTimeout(t.ctx, min(t.ttl/3, t.left()))
		_, err := t.client.KeepAliveOnce(ctx, t.lease)
		cancel()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return
		case err == nil:
			t.renewed(sent)
			t.s.trouble.Store(nil)
		case t.ctx.Err() == nil:
			t.s.fails(classify(err))
		}
	}
}

func (t *etcdTerm) end() { t.cancel() }

// release leaves the lease to the next Campaign.
func (t *etcdTerm) release() {
	t.end()
	t.s.mu.Lock()
	t.s.stale = append(t.s.stale, t.lease)
	t.s.mu.Unlock()
	close(t.released)
}

// over reports whether the term has ended. It ends the term if the lease has ended, which
// renew notices later after the process was stopped.
func (t *etcdTerm) over() bool {
	if t.left() <= 0 {
		t.end()
	}
	return t.ctx.Err() != nil
}

func (t *etcdTerm) overError() error {
	if t.over() {
		return ErrNotLeader
	}
	return nil
}

func (t *etcdTerm) Lost() <-chan struct{} { return t.ctx.Done() }

func (t *etcdTerm) Resign(ctx context.Context) error {
	t.end()
	<-t.released
	return t.s.revoke(ctx)
}

// begin writes the txn key. From then on no change of an earlier leader is possible.
func (t *etcdTerm) begin(ctx context.Context) error {
	ctx, cancel := t.s.request(ctx)
	defer cancel()
	resp, err := t.client.Txn(ctx).If(t.leads()).Then(clientv3.OpPut(t.txnKey(), t.txnValue(0))).Commit()
	switch {
	case err != nil:
		return classify(err)
	case !resp.Succeeded:
		return ErrNotLeader
	}
	t.last = resp.Header.Revision
	return nil
}

func (t *etcdTerm) leads() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.rev)
}

func (t *etcdTerm) txnKey() string { return t.s.o.Prefix + txnKey }

func (t *etcdTerm) txnValue(number int64) string { return fmt.Sprintf("%d %d", t.rev, number) }

func (t *etcdTerm) Load(ctx context.Context, each func(Record) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.mirror
	t.mirror = nil
	if m == nil {
		ctx, cancel := joined(ctx, t.ctx)
		defer cancel()
		m = newMirror(t.client, t.s.o.Prefix)
		if err := m.load(ctx); err != nil {
			if t.over() {
				return ErrNotLeader
			}
			return err
		}
	}
	if t.over() {
		return ErrNotLeader
	}
	return m.each(ctx, each)
}

func (t *etcdTerm) Commit(ctx context.Context, changes []Change) error {
	if err := check(changes); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unknown != nil && !Same(changes, t.unknown) {
		return errors.New("catalog: a commit of unknown outcome must be repeated first")
	}
	t.mirror = nil
	if t.over() {
		return t.lostError()
	}
	ctx, cancel := joined(ctx, t.ctx)
	defer cancel()
	ctx, cancel = t.s.request(ctx)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := t.try(ctx, changes)
		switch {
		case err == nil || errors.Is(err, ErrConflict):
			t.unknown = nil
			return err
		case errors.Is(err, ErrFull):
			return err
		case errors.Is(err, ErrUnavailable):
			t.unknown = append([]Change{}, changes...)
		default:
			t.end()
			return err
		}
		if !clock.Sleep(ctx, pause) {
			if t.over() {
				return t.lostError()
			}
			return err
		}
	}
}

func (t *etcdTerm) lostError() error {
	if t.unknown != nil {
		return fmt.Errorf("%w, and whether the last changes were made is not known: %w", ErrNotLeader, ErrUnavailable)
	}
	return ErrNotLeader
}

// try sends a transaction once.
func (t *etcdTerm) try(ctx context.Context, changes []Change) error {
	ctx, cancel := context.WithTimeout(ctx, t.ttl/4) // another member may answer
	defer cancel()
	txn := t.txnValue(t.number + 1)
	compare := []clientv3.Cmp{t.leads(), clientv3.Compare(clientv3.ModRevision(t.txnKey()), "=", t.last)}
	write := []clientv3.Op{clientv3.OpPut(t.txnKey(), txn)}
	read := []clientv3.Op{clientv3.OpGet(t.txnKey()), clientv3.OpGet(t.key)}
	for _, c := range changes {
		key := t.s.o.Prefix + recordPrefix + c.Key
		compare = append(compare, clientv3.Compare(clientv3.Version(key), "=", c.Version))
		if c.Value == nil {
			write = append(write, clientv3.OpDelete(key))
		} else {
			write = append(write, clientv3.OpPut(key, string(c.Value)))
		}
		read = append(read, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	}
	resp, err := t.client.Txn(ctx).If(compare...).Then(write...).Else(read...).Commit()
	if err != nil {
		return t.s.named(classify(err))
	}
	if resp.Succeeded {
		t.number++
		t.last = resp.Header.Revision
		return nil
	}
	last := resp.Responses[0].GetResponseRange().Kvs
	if len(last) > 0 && string(last[0].Value) == txn { // an earlier try was applied
		t.number++
		t.last = last[0].ModRevision
		return nil
	}
	leader := resp.Responses[1].GetResponseRange().Kvs
	if len(leader) == 0 || leader[0].CreateRevision != t.rev || len(last) == 0 || last[0].ModRevision != t.last {
		return t.lostError()
	}
	for i, c := range changes {
		version := int64(0)
		if kvs := resp.Responses[2+i].GetResponseRange().Kvs; len(kvs) > 0 {
			version = kvs[0].Version
		}
		if version != c.Version {
			return conflict(c, version)
		}
	}
	return fmt.Errorf("%w: etcd refused a transaction whose conditions hold", ErrCorrupt)
}
