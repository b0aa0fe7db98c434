package transport_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
)

func TestOpen(t *testing.T) {
	for _, name := range transport.Usable() {
		p, err := transport.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name() != name {
			t.Errorf("%s calls itself %s", name, p.Name())
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func Example() {
	_, err := transport.Open("carrier pigeon")
	fmt.Println(err)

	// The host lends a region and accepts one queue pair.
	host, _ := transport.Open("tcp")
	defer func() { _ = host.Close() }()
	listener, _ := host.Listen("", 16)
	region, _ := host.Alloc(4096)
	copy(region.Bytes(), "remote memory")
	go func() {
		if request, err := listener.Accept(context.Background()); err == nil {
			_, _ = request.Accept(nil, fabric.ReadWrite)
		}
	}()

	// The client reads it: enqueue, ring the doorbell, wait, poll.
	client, _ := transport.Open("tcp")
	defer func() { _ = client.Close() }()
	ctx := context.Background()
	pair, err := client.Dial(ctx, listener.Addr(), nil, 16)
	if err != nil {
		fmt.Println(err)
		return
	}
	remote, _ := pair.Import(ctx, region.Token())
	buf := make([]byte, 6)
	_ = pair.Read(buf, remote, 7, 1)
	_ = pair.Submit()
	var done [16]fabric.Completion
	for pair.Poll(done[:]) == 0 {
		_ = pair.Wait(ctx)
	}
	fmt.Println(done[0].Tag, done[0].Err, string(buf))
	// Output:
	// unknown transport "carrier pigeon": want one of mem, shm, tcp, verbs
	// 1 <nil> memory
}
