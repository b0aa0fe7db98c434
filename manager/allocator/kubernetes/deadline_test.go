package kubernetes

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
