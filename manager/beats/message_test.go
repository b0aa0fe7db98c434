package beats

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// FuzzDecode compares beat.decode with proto.Unmarshal, for one beat after another.
func FuzzDecode(f *testing.F) {
	for _, m := range []*managerv1.Beat{
		{},
		{Call: &managerv1.Beat_Heartbeat{Heartbeat: &managerv1.HeartbeatRequest{VmId: "vm", FreeMemory: 1 << 40}}},
		{Call: &managerv1.Beat_Heartbeat{Heartbeat: &managerv1.HeartbeatRequest{VmId: "vm"}}},
		{Call: &managerv1.Beat_Heartbeat{Heartbeat: &managerv1.HeartbeatRequest{VmId: "vm", FreeMemory: 1 << 40, Start: 1 << 50}}},
		{Call: &managerv1.Beat_Heartbeat{Heartbeat: &managerv1.HeartbeatRequest{VmId: "vm", Start: 1}}},
		{Call: &managerv1.Beat_Heartbeat{Heartbeat: &managerv1.HeartbeatRequest{FreeMemory: 7}}},
		{Call: &managerv1.Beat_Heartbeat{Heartbeat: &managerv1.HeartbeatRequest{}}},
		{Call: &managerv1.Beat_Renew{Renew: &managerv1.RenewRequest{CacheId: "cache"}}},
		{Call: &managerv1.Beat_Renew{Renew: &managerv1.RenewRequest{}}},
		{Call: &managerv1.Beat_Renew{Renew: &managerv1.RenewRequest{CacheId: "cache", Holder: 1 << 40}}},
		{Call: &managerv1.Beat_Renew{Renew: &managerv1.RenewRequest{Holder: 1}}},
		{Call: &managerv1.Beat_Renew{Renew: &managerv1.RenewRequest{CacheId: "cache", Holder: 1, Windows: []*managerv1.Window{
			{Number: 3, EndedAgoMs: 100, LastedMs: 5000, Reads: &managerv1.Measured{ThroughputMops: 1.5, MeanLatencyUs: 10, P99LatencyUs: 30, InFlight: 15, RecordSize: 64}},
		}}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, b...))
	}
	f.Add([]byte{0x0a, 0x04, 0x0a, 0x02, 0xff, 0xfe})
	before, err := proto.Marshal(&managerv1.Beat{Call: &managerv1.Beat_Heartbeat{Heartbeat: &managerv1.HeartbeatRequest{VmId: "before", FreeMemory: 9, Start: 8}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		var b beat
		if err := b.decode(before); err != nil {
			t.Fatal(err)
		}
		var want managerv1.Beat
		failed := proto.Unmarshal(message, &want)
		if err := b.decode(message); (err == nil) != (failed == nil) {
			t.Fatalf("%x: %v, want %v", message, err, failed)
		}
		if failed != nil {
			return
		}
		if (b.heartbeat == nil) != (want.GetHeartbeat() == nil) || (b.renew == nil) != (want.GetRenew() == nil) ||
			b.heartbeat.GetVmId() != want.GetHeartbeat().GetVmId() || b.heartbeat.GetFreeMemory() != want.GetHeartbeat().GetFreeMemory() ||
			b.heartbeat.GetStart() != want.GetHeartbeat().GetStart() ||
			b.renew.GetCacheId() != want.GetRenew().GetCacheId() || b.renew.GetHolder() != want.GetRenew().GetHolder() ||
			!slices.EqualFunc(b.renew.GetWindows(), want.GetRenew().GetWindows(), func(a, b *managerv1.Window) bool { return proto.Equal(a, b) }) {
			t.Errorf("%x: %v, %v, want %v", message, b.heartbeat, b.renew, &want)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	message, err := proto.Marshal(&managerv1.Beat{Call: &managerv1.Beat_Heartbeat{Heartbeat: &managerv1.HeartbeatRequest{VmId: "vm-0123456789", FreeMemory: 1 << 34, Start: 1 << 50}}})
	if err != nil {
		b.Fatal(err)
	}
	var into beat
	b.ReportAllocs()
	for b.Loop() {
		if err := into.decode(message); err != nil {
			b.Fatal(err)
		}
	}
}
