package catalog

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redykv/redykv/internal/clock"
)

// Keys of a catalog in etcd, after the prefix.
const (
	leaderKey = "leader" // of the election: a candidate's key is leader/LEASE
	txnKey    = "txn"
)

// mirror is a copy of all keys of a catalog. A standby keeps it up to date, so that it can
// take over without reading the catalog.
type mirror struct {
	client *clientv3.Client
	prefix string

	mu         sync.Mutex // guards the following
	revision   int64      // the copy has all changes up to this one; 0: it is not loaded
	watching   bool       // etcd sends changes
	records    map[string]Record
	candidates map[string]candidate
	changed    chan struct{} // closed by the next change
}

// candidate is a key of the election.
type candidate struct {
	url     string
	lease   clientv3.LeaseID
	created int64 // revision
}

func newMirror(client *clientv3.Client, prefix string) *mirror {
	return &mirror{client: client, prefix: prefix, changed: make(chan struct{})}
}

// run keeps the mirror up to date until ctx ends.
func (m *mirror) run(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		if m.loaded() || m.load(ctx) == nil {
			if m.watch(ctx) {
				pause = firstPause
			}
		}
		clock.Sleep(ctx, pause)
	}
}

func (m *mirror) loaded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision > 0
}

// pageSize is the number of keys that load reads at a time. For each page etcd counts all keys
// that are left.
const pageSize = 10_000

// load reads all keys at one revision. It begins again if etcd forgets the revision or is
// away.
func (m *mirror) load(ctx context.Context) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := m.loadOnce(ctx)
		if !errors.Is(err, rpctypes.ErrCompacted) {
			if err = classify(err); !errors.Is(err, ErrUnavailable) {
				return err
			}
		}
		if !clock.Sleep(ctx, pause) {
			return err
		}
	}
}

func (m *mirror) loadOnce(ctx context.Context) error {
	loaded := &mirror{prefix: m.prefix, records: make(map[string]Record), candidates: make(map[string]candidate)}
	end := clientv3.GetPrefixRangeEnd(m.prefix)
	for from := m.prefix; ; {
		resp, err := m.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(loaded.revision))
		if err != nil {
			return err
		}
		if loaded.revision == 0 {
			loaded.revision = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			loaded.put(kv)
			from = string(kv.Key) + "\x00"
		}
		if !resp.More {
			break
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision, m.records, m.candidates = loaded.revision, loaded.records, loaded.candidates
	m.notify()
	return nil
}

// watch follows the changes until ctx ends or etcd stops sending. It reports whether there
// were some.
func (m *mirror) watch(ctx context.Context) (some bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range m.client.Watch(ctx, m.prefix, clientv3.WithPrefix(), clientv3.WithRev(m.revision+1), clientv3.WithCreatedNotify()) {
		m.mu.Lock()
		m.watching = true
		if resp.CompactRevision != 0 {
			m.revision = 0 // some changes cannot be had any more
		}
		for _, e := range resp.Events {
			if e.Type == mvccpb.Event_DELETE {
				m.delete(string(e.Kv.Key))
			} else {
				m.put(e.Kv)
			}
			m.revision = e.Kv.ModRevision
			some = true
		}
		m.notify()
		m.mu.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watching = false
	return some
}

// put is called under mu, as is delete.
func (m *mirror) put(kv *mvccpb.KeyValue) {
	key := strings.TrimPrefix(string(kv.Key), m.prefix)
	if record, ok := strings.CutPrefix(key, recordPrefix); ok {
		m.records[record] = Record{record, kv.Value, kv.Version}
	}
	if strings.HasPrefix(key, leaderKey+"/") {
		m.candidates[key] = candidate{string(kv.Value), clientv3.LeaseID(kv.Lease), kv.CreateRevision}
	}
}

func (m *mirror) delete(key string) {
	key = strings.TrimPrefix(key, m.prefix)
	if record, ok := strings.CutPrefix(key, recordPrefix); ok {
		delete(m.records, record)
	}
	delete(m.candidates, key)
}

// notify is called under mu.
func (m *mirror) notify() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// wait waits until done, which is called under mu, returns true.
func (m *mirror) wait(ctx context.Context, done func() bool) error {
	for {
		m.mu.Lock()
		ok, changed := m.revision > 0 && done(), m.changed
		m.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leader returns the oldest candidate.
func (m *mirror) leader() (oldest candidate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.candidates {
		if oldest.created == 0 || c.created < oldest.created {
			oldest = c
		}
	}
	return oldest
}

// leases returns those of the candidates with a URL.
func (m *mirror) leases(url string) (all []clientv3.LeaseID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.candidates {
		if c.url == url {
			all = append(all, c.lease)
		}
	}
	return all
}

// each calls f for all records. The mirror does not change any more.
func (m *mirror) each(ctx context.Context, f func(Record) error) error {
	for _, key := range slices.Sorted(maps.Keys(m.records)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f(m.records[key]); err != nil {
			return err
		}
	}
	return nil
}
