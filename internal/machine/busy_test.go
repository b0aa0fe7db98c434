package machine

import (
	"context"
	"runtime"
	"testing"
	"time"
)

func TestBusy(t *testing.T) {
	share, ok := Busy(t.Context(), 50*time.Millisecond)
	if ok != (runtime.GOOS == "linux") || share < 0 || share > 1 {
		t.Errorf("%v, %t", share, ok)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := Busy(ctx, time.Hour); ok {
		t.Error("known after its context has ended")
	}
}
