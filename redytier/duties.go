package redytier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// duties are the controller's own tasks. Each compares what should be with the table, takes
// the steps that are missing, and is repeated with growing pauses while it fails. So a duty
// needs not know what happened, only that something did.
type duties struct {
	controller *controller
	leaves     map[string]*duty     // by VM: to leave reclaimed VMs
	notices    map[string]time.Time // deadline of each VM that is reclaimed
	restore    *duty
	tidy       *duty

	avoid     []incarnation // servers whose memory was lost and is not replaced yet
	attempts  int           // to replace it since the last loss
	reporting bool          // the application is being notified of losses
}

// incarnation is one run of a VM's cache server.
type incarnation struct {
	vm    string
	start uint64 // 0: not known
}

// duty is one such task.
type duty struct {
	task
	of     *controller
	queued bool          // it waits or runs
	again  bool          // it was called while it ran
	pause  time.Duration // after the next failure
}

func newDuties(k *controller) duties {
	d := duties{controller: k, leaves: map[string]*duty{}, notices: map[string]time.Time{}}
	d.restore = k.newDuty(urgency{rank: restoring}, k.cache.replaceLost)
	d.tidy = k.newDuty(urgency{rank: tidying}, k.cache.tidyUp)
	return d
}

// newDuty returns a duty that nothing has called for yet.
func (k *controller) newDuty(u urgency, operation func(ctx context.Context) error) *duty {
	d := &duty{of: k}
	d.task = task{urgency: u, ctx: k.cache.ctx, operation: operation, ended: d.hasEnded}
	return d
}

// call makes the duty run, once more if it runs already.
func (d *duty) call() {
	d.due, d.patient, d.pause = time.Time{}, false, 2*firstPause
	if !d.queued {
		d.queued = true
		d.of.add(&d.task)
	} else if d.of.running == &d.task {
		d.again = true
	}
}

// hasEnded makes the duty run again if it has failed or was called meanwhile.
func (d *duty) hasEnded(err error) {
	again := d.again
	d.queued, d.again = false, false
	over := d.of.ending || errors.Is(err, ErrDeleted) || errors.Is(err, ErrTaken) || d.rank == leaving && time.Now().After(d.deadline)
	if err != nil && !errors.Is(err, ErrDeleted) {
		d.of.cache.log.Warn(d.failure(), "again", !over, "err", err)
	}
	switch {
	case over:
	case err != nil:
		pause := d.pause
		d.call()
		d.due, d.patient, d.pause = time.Now().Add(pause), d.rank == restoring, min(2*pause, longPause)
	case again:
		d.call()
	}
}

// failure says what the duty has failed to do.
func (d *duty) failure() string {
	switch d.rank {
	case leaving:
		return "VM " + d.vm + " is reclaimed and not left"
	case restoring:
		return "lost memory is not replaced"
	}
	return "unused memory is not returned"
}

// reclaimed moves all regions away from a VM before its deadline. From now on the VM is no
// target of a move.
func (d *duties) reclaimed(vm string, deadline time.Time) {
	d.forget()
	d.notices[vm] = deadline
	l := d.leaves[vm]
	if l == nil {
		l = d.controller.newDuty(urgency{rank: leaving, vm: vm}, nil)
		d.leaves[vm] = l
	}
	l.deadline = deadline
	l.operation = func(ctx context.Context) error {
		ctx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		c := d.controller.cache
		if c.gone() { // all of it is allocated again when memory is lost
			return nil
		}
		err := c.migrate(ctx, []string{vm}, false)
		if errors.Is(context.Cause(ctx), errPreempted) && !c.table.Load().uses(vm) {
			return nil // the rest is left to tidy
		}
		return err
	}
	l.call()
}

// forget drops the notices of VMs that are gone.
func (d *duties) forget() {
	now := time.Now()
	maps.DeleteFunc(d.notices, func(_ string, deadline time.Time) bool { return now.After(deadline) })
	maps.DeleteFunc(d.leaves, func(vm string, l *duty) bool { return !l.queued && d.notices[vm].IsZero() })
}

// reclaiming returns the deadlines of the reclaimed VMs that are not gone yet. It is called by
// tasks.
func (k *controller) reclaiming() (notices map[string]time.Time) {
	k.do(func() {
		k.duties.forget()
		notices = maps.Clone(k.duties.notices)
	})
	return notices
}

// checkTargets refuses memory of a reclaimed VM. If its notice came after the request for
// memory, before which the reclaimed VMs were known, the task runs again.
func (k *controller) checkTargets(grants []*managerv1.Grant, known map[string]time.Time) error {
	reclaimed := k.reclaiming()
	for _, g := range grants {
		vm := g.GetVm().GetId()
		if _, ok := reclaimed[vm]; !ok {
			continue
		}
		err := fmt.Errorf("the manager grants memory of VM %s, which is reclaimed", vm)
		if _, ok := known[vm]; !ok {
			err = fmt.Errorf("%w: %w", errPreempted, err)
		}
		return err
	}
	return nil
}

// cheaper moves all regions away from VMs for which there are cheaper ones. It tries once: the
// manager proposes it again while it still saves money.
func (d *duties) cheaper(vms []string) {
	c := d.controller.cache
	d.controller.add(&task{
		urgency: urgency{rank: saving}, ctx: c.ctx,
		operation: func(ctx context.Context) error { return c.migrate(ctx, vms, true) },
		ended: func(err error) {
			if err != nil && !errors.Is(err, ErrDeleted) {
				c.log.Info("not moved to cheaper VMs", "vms", vms, "err", err)
			}
		},
	})
}

// reconfigure changes the configuration as the manager asks, unless the cache has another one
// meanwhile than the manager knows. It tries once: the manager asks again while the SLO is broken.
func (d *duties) reconfigure(to, insteadOf Configuration, saves bool) {
	c := d.controller.cache
	u := urgency{rank: mending}
	if saves {
		u.rank = saving
	}
	d.controller.add(&task{
		urgency: u, ctx: c.ctx,
		operation: func(ctx context.Context) error {
			if c.gone() || c.Configuration() != insteadOf {
				return nil
			}
			if err := cmp.Or(c.cfg.allows(to, c.slo.RecordSize), c.cfg.Tuning.Check(to)); err != nil {
				return err
			}
			return c.reconfigure(ctx, to)
		},
		ended: func(err error) {
			switch {
			case err == nil:
				c.log.Info("reconfigured as the manager has asked", "configuration", fmt.Sprintf("%+v", c.Configuration()))
			case !errors.Is(err, ErrDeleted):
				c.log.Warn("not reconfigured as the manager has asked", "configuration", fmt.Sprintf("%+v", to), "err", err)
			}
		},
	})
}

// lost has lost memory replaced that servers lent, however long that takes. Only the first attempt
// preempts other tasks: they would never finish if no memory is available.
func (d *duties) lost(servers ...incarnation) {
	for _, s := range servers {
		if !slices.Contains(d.avoid, s) {
			d.avoid, d.attempts = append(d.avoid, s), 0
		}
	}
	d.report()
	switch c := d.controller.cache; {
	case c.restorable():
		d.restore.call()
	case c.Err() == nil: // no region was there
		d.tidy.call()
	}
}

// report notifies the application of lost memory without a copy, and then has it replaced. It
// does not wait for the application, which may wait for a task. A cache that is deleted or detached
// loses nothing more.
func (d *duties) report() {
	k, c := d.controller, d.controller.cache
	if d.reporting || c.ctx.Err() != nil || c.taken.Load() || len(c.unreported(c.table.Load())) == 0 {
		return
	}
	d.reporting = c.background.Go(func() {
		err := c.reportDataLoss(c.ctx)
		k.mail.post(func() {
			d.reporting = false
			if err == nil {
				d.report()
				d.restore.call()
			}
		})
	})
}

// attempt returns the servers whose memory is not used in the next attempt to replace what is lost.
// The manager may not know yet that they are lost. Every second attempt may use them: they may run,
// and be all that there is.
func (k *controller) attempt() (avoid []*managerv1.VmIncarnation) {
	k.do(func() {
		d := &k.duties
		if d.attempts%2 == 0 {
			for _, s := range d.avoid {
				avoid = append(avoid, &managerv1.VmIncarnation{VmId: s.vm, Start: s.start})
			}
		}
		d.attempts++
	})
	return avoid
}

// attempted notes the end of an attempt.
func (k *controller) attempted() {
	k.do(func() {
		d := &k.duties
		if k.cache.Err() == nil {
			d.avoid, d.attempts = nil, 0
		}
		d.report()
	})
}
