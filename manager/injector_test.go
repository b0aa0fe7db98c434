package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/redykv/redykv/manager/catalog"
)

// injector is the catalog and the network of a manager. It interferes with one of the steps
// of a leader, which are its commits and its words to servers.
type injector struct {
	catalog.Store

	servers http.RoundTripper
	at      func(do func() error) // makes the chosen step

	mu   sync.Mutex
	left int // steps until the chosen one; -1: it has begun; none: there is none
	term catalog.Term
}

const none = -2

func (i *injector) Campaign(ctx context.Context, url string) (catalog.Term, error) {
	t, err := i.Store.Campaign(ctx, url)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.term = t
	return injectedTerm{t, i}, nil
}

type injectedTerm struct {
	catalog.Term
	of *injector
}

func (t injectedTerm) Commit(ctx context.Context, changes []catalog.Change) (err error) {
	t.of.step(func() error {
		err = t.Term.Commit(ctx, changes)
		return err
	})
	return err
}

// errDisobeyed is the result of a word that a server refuses, as it obeys another leader, or
// does not receive, as it has ended.
var errDisobeyed = errors.New("a server does not obey")

// RoundTrip makes a call of a server.
func (i *injector) RoundTrip(req *http.Request) (r *http.Response, err error) {
	req = req.WithContext(context.WithoutCancel(req.Context()))
	i.step(func() error {
		r, err = i.servers.RoundTrip(req) //nolint:bodyclose // it is returned
		if err != nil || r.StatusCode == http.StatusBadRequest {
			return errDisobeyed
		}
		return nil
	})
	return r, err
}

// step makes a step.
func (i *injector) step(do func() error) {
	i.mu.Lock()
	chosen := i.left == 0
	if i.left >= 0 {
		i.left--
	}
	i.mu.Unlock()
	if chosen {
		i.at(do)
		return
	}
	_ = do() // the caller has its error
}

// choose chooses the step after so many others.
func (i *injector) choose(left int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.left = left
}

// outdated checks the error of a step that is made after another leader has begun.
func outdated(err error) error {
	if errors.Is(err, catalog.ErrNotLeader) || errors.Is(err, errDisobeyed) {
		return nil
	}
	return fmt.Errorf("a step of a former leader is not refused: %w", err)
}
