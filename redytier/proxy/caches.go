package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/redykv/redykv/redytier"
)

// deleteTimeout bounds the deletion of caches.
const deleteTimeout = 10 * time.Second

// maxRegionsListed bounds the regions of one answer.
const maxRegionsListed = 1000

// cache is one cache of the proxy.
type cache struct {
	id      string // the manager's when the cache was created
	redy    *redytier.Cache
	created time.Time
}

// Description is the JSON of a cache.
type Description struct {
	ID string `json:"id"`
	// ManagerID is the manager's name for the cache. It is the id until the cache is allocated
	// again, because the manager did not know it any more.
	ManagerID     string        `json:"manager_id"`
	Capacity      int64         `json:"capacity"`    // bytes
	RegionSize    int64         `json:"region_size"` // bytes
	Configuration Configuration `json:"configuration"`
	Transport     string        `json:"transport"`
	Created       time.Time     `json:"created"`
	// Regions is the number of regions in each state that there is: stable, quiescing, copying,
	// lost, recovering. Not in lists.
	Regions map[string]int `json:"regions,omitempty"`
	// Error says why some of the cache does not answer; empty: all does.
	Error string `json:"error,omitempty"`
}

// Region is the JSON of a region.
type Region struct {
	From   int64  `json:"from"` // address
	To     int64  `json:"to"`   // address behind the last byte
	VM     string `json:"vm,omitempty"`
	State  string `json:"state"`
	Losses uint64 `json:"losses"`           // of its memory, since the cache was created
	Target string `json:"target,omitempty"` // VM to which it moves
	Copied int64  `json:"copied,omitempty"` // bytes, while it moves
}

func (c *cache) describe() Description {
	d := Description{
		ID: c.id, ManagerID: c.redy.ID(), Capacity: c.redy.Capacity(), RegionSize: c.redy.RegionSize(),
		Configuration: Configuration(c.redy.Configuration()), Transport: c.redy.Transport(), Created: c.created,
	}
	if err := c.redy.Err(); err != nil {
		d.Error = err.Error()
	}
	return d
}

// find returns the cache that a request's path names.
func (p *Proxy) find(r *http.Request) (*cache, error) {
	id := r.PathValue("id")
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.caches[id]; c != nil {
		return c, nil
	}
	return nil, problemf(CodeNotFound, "no cache %.100q", id)
}

// list returns all caches in the order of their ids.
func (p *Proxy) list() []*cache {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedFunc(maps.Values(p.caches), func(a, b *cache) int { return strings.Compare(a.id, b.id) })
}

func (p *Proxy) listCaches(w http.ResponseWriter, _ *http.Request) error {
	answer := struct {
		Caches []Description `json:"caches"`
	}{[]Description{}}
	for _, c := range p.list() {
		answer.Caches = append(answer.Caches, c.describe())
	}
	p.answer(w, http.StatusOK, answer)
	return nil
}

func (p *Proxy) describeCache(w http.ResponseWriter, r *http.Request) error {
	c, err := p.find(r)
	if err != nil {
		return err
	}
	d := c.describe()
	d.Regions = make(map[string]int)
	for _, region := range c.redy.Regions() {
		d.Regions[region.State.String()]++
	}
	p.answer(w, http.StatusOK, d)
	return nil
}

// listRegions answers with the regions from an address, and where the next answer continues.
func (p *Proxy) listRegions(w http.ResponseWriter, r *http.Request) error {
	c, err := p.find(r)
	if err != nil {
		return err
	}
	from := int64(0)
	if text := r.URL.Query().Get("from"); text != "" {
		var ok bool
		if from, ok = parseNumber(text); !ok {
			return problemf(CodeInvalid, "from=%.60q: want an address", text)
		}
	}
	answer := struct {
		Regions []Region `json:"regions"`
		Next    int64    `json:"next,omitempty"` // from of the rest; unset: there is none
	}{Regions: []Region{}}
	all := c.redy.Regions()
	all = all[sort.Search(len(all), func(i int) bool { return all[i].To > from }):]
	if len(all) > maxRegionsListed {
		answer.Next, all = all[maxRegionsListed].From, all[:maxRegionsListed]
	}
	for _, i := range all {
		answer.Regions = append(answer.Regions, Region{
			From: i.From, To: i.To, VM: i.VM, State: i.State.String(), Losses: i.Epoch, Target: i.Target, Copied: i.Copied,
		})
	}
	p.answer(w, http.StatusOK, answer)
	return nil
}

func (p *Proxy) createCache(w http.ResponseWriter, r *http.Request) error {
	q, err := readRequest(w, r)
	if err != nil {
		return err
	}
	config, err := q.config(p.opts.Base)
	if err != nil {
		return err
	}
	c, err := p.create(r.Context(), config)
	if err != nil {
		return err
	}
	p.log.Info("cache created", "cache", c.id, "capacity", q.Capacity)
	w.Header().Set("Location", "/v1/caches/"+url.PathEscape(c.id))
	p.answer(w, http.StatusCreated, c.describe())
	return nil
}

// create creates a cache for a caller who waits for it.
func (p *Proxy) create(ctx context.Context, config redytier.Config) (*cache, error) {
	if err := p.claim(); err != nil {
		return nil, err
	}
	defer p.creating.Done()
	ctx, cancel := context.WithTimeout(ctx, p.opts.CreateTimeout)
	defer cancel()
	defer context.AfterFunc(p.ending, cancel)()
	redy, err := redytier.Create(ctx, p.mgr, config)
	var c *cache
	if err == nil {
		c = &cache{id: redy.ID(), redy: redy, created: time.Now().UTC()}
		err = ctx.Err() // nobody waits for the cache
	}
	p.mu.Lock()
	p.claims--
	if c != nil {
		p.caches[c.id] = c
	}
	p.mu.Unlock()
	if err == nil {
		return c, nil
	}
	if c != nil {
		err = errors.Join(err, p.delete(context.WithoutCancel(ctx), c))
	}
	return nil, createProblem(fmt.Errorf("the cache was not created: %w", err))
}

// claim reserves the place of a cache that will be created. The caller gives back claims, and
// calls creating.Done.
func (p *Proxy) claim() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return problemf(CodeBusy, "the proxy ends")
	case len(p.caches)+p.claims >= p.opts.MaxCaches:
		return problemf(CodeManyCaches, "%d caches exist or are being created: delete one first", p.opts.MaxCaches)
	}
	p.claims++
	p.creating.Add(1)
	return nil
}

func (p *Proxy) deleteCache(w http.ResponseWriter, r *http.Request) error {
	c, err := p.find(r)
	if err != nil {
		return err
	}
	// A caller that goes away does not stop the deletion.
	if err := p.delete(context.WithoutCancel(r.Context()), c); err != nil {
		return err
	}
	p.log.Info("cache deleted", "cache", c.id)
	p.giveTime(w)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// delete deletes a cache. If the manager does not answer, the cache answers no longer, and can be
// deleted again.
func (p *Proxy) delete(ctx context.Context, c *cache) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	if err := c.redy.Delete(ctx); errors.Is(err, redytier.ErrDeleted) {
		return problemf(CodeNotFound, "cache %s was deleted by another request", c.id)
	} else if err != nil {
		return createProblem(fmt.Errorf("the cache is not deleted at the manager; its memory is returned when its lease ends: %w", err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.caches, c.id)
	return nil
}
