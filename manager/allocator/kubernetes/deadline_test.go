package kubernetes

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The time left to a pod is not above its notice, and not below it where the notice has just
// begun, however far the clocks of the cluster and of this machine differ.
func TestDeadline(t *testing.T) {
	t.Parallel()
	const grace = 60 * time.Second
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		name  string
		ahead time.Duration // this machine's clock, of the cluster's
		age   time.Duration // of the notice
		seen  bool          // its beginning
		left  time.Duration
	}{
		{name: "has just begun", seen: true, left: grace},
		{name: "began earlier", age: 20 * time.Second, seen: true, left: 40 * time.Second},
		{name: "has just begun, clock is ahead by less than the cluster's times tell", ahead: 900 * time.Millisecond, seen: true, left: grace - 900*time.Millisecond},
		{name: "has just begun, clock is an hour ahead", ahead: time.Hour, seen: true, left: grace},
		{name: "has just begun, clock is an hour behind", ahead: -time.Hour, seen: true, left: grace},
		{name: "began earlier, clock is an hour ahead", ahead: time.Hour, age: 20 * time.Second, seen: true, left: 40 * time.Second},
		{name: "began unseen", age: 20 * time.Second, left: 40 * time.Second},
		{name: "began unseen, clock is an hour behind", ahead: -time.Hour, age: 20 * time.Second, left: grace},
		{name: "ended unseen", age: 2 * grace, left: -grace},
	} {
		begin := now.Add(-c.ahead - c.age)
		deleted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			DeletionTimestamp: new(metav1.NewTime(begin.Add(grace))), DeletionGracePeriodSeconds: new(int64(grace / time.Second)),
		}}
		evicted := &corev1.Pod{
			Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(grace / time.Second))},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(begin),
			}}},
		}
		var began time.Time
		if c.seen {
			began = now.Add(-c.age)
		}
		for how, p := range map[string]*corev1.Pod{"deleted": deleted, "evicted": evicted} {
			if left := taken(p).deadline(began, now).Sub(now); left != c.left {
				t.Errorf("%s: %s: %v are left, want %v", how, c.name, left, c.left)
			}
		}
	}
	if n := taken(new(corev1.Pod)); n != (notice{}) {
		t.Errorf("a pod that stays has the notice %v", n)
	}
}

// A notice that a list shows after a gap of the watch was not seen to begin, unless it is that which
// was seen before.
func TestNoticeAfterGap(t *testing.T) {
	t.Parallel()
	end := time.Unix(1e9, 0)
	pod := func(uid types.UID, end time.Time) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "vm-a", UID: uid, DeletionTimestamp: new(metav1.NewTime(end))}}
	}
	for name, c := range map[string]struct {
		listed *corev1.Pod
		seen   bool
	}{
		"same notice":    {pod("1", end), true},
		"another notice": {pod("1", end.Add(time.Second)), false},
		"another pod":    {pod("2", end), false},
	} {
		a := apart(t)
		a.setPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "vm-a", UID: "1"}}, false)
		a.setPod(pod("1", end), false)
		a.setPods(&corev1.PodList{Items: []corev1.Pod{*c.listed}})
		if seen := !a.began["vm-a"].IsZero(); seen != c.seen {
			t.Errorf("%s: its beginning was seen: %v, want %v", name, seen, c.seen)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}
