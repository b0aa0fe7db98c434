package redytier

import (
	"slices"
	"testing"
	"time"
)

// What is gone first is left first, what is lost is replaced then, and what is dear is
// left last; what comes again waits for its time.
func TestKeeperOrder(t *testing.T) {
	k := newKeeper(nil)
	now := time.Unix(1_000_000, 0)
	lost := &grant{vm: "lost"}
	k.dear([]string{"dear"})
	k.lost(lost)
	k.reclaimed("second", now.Add(time.Minute))
	k.add(task{leaving: "later", deadline: now.Add(time.Second), next: now.Add(time.Millisecond)})
	k.reclaimed("first", now.Add(30*time.Second))
	k.reclaimed("third", now.Add(time.Minute))
	var order []string
	for {
		task, ok, next := k.due(now)
		if !ok {
			if want := now.Add(time.Millisecond); !next.Equal(want) {
				t.Errorf("the next task is due at %v, want %v", next, want)
			}
			break
		}
		switch {
		case task.lost != nil:
			order = append(order, task.lost.vm)
		case task.dear != nil:
			order = append(order, task.dear...)
		default:
			order = append(order, task.leaving)
		}
	}
	if want := []string{"first", "second", "third", "lost", "dear"}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
	if task, ok, _ := k.due(now.Add(time.Millisecond)); !ok || task.leaving != "later" {
		t.Errorf("%+v", task)
	}
}
