package manager_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager"
)

// An embedded manager answers the same calls as a remote one, so code for the client of one
// works with the other.
func ExampleEmbed() {
	ctx := context.Background()
	mgr, err := manager.Embed(ctx, manager.EmbedOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := mgr.Close(); err != nil {
			fmt.Println(err)
		}
	}()

	cache, err := mgr.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: rand.Text(), Capacity: 3 << 20, RegionSize: 1 << 20}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, grant := range cache.Msg.GetGrants() {
		fmt.Println(grant.GetRegions(), "regions over", grant.GetVm().GetTransport(), "healthy:", grant.GetVm().GetHealthy())
	}
	_, err = mgr.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: cache.Msg.GetCacheId()}))
	fmt.Println("deallocated:", err == nil)
	// Output:
	// 3 regions over mem healthy: true
	// deallocated: true
}
