package resp_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp"
)

// A program that embeds a store also serves it to Redis clients.
func ExampleServer() {
	store, err := kv.Open(kv.Options{Device: device.NewMemory()})
	if err != nil {
		log.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := resp.NewServer(store, resp.Options{})
	served := make(chan error)
	go func() { served <- server.Serve(ln) }()

	if err := store.Upsert(context.Background(), []byte("greeting"), []byte("hello")); err != nil {
		log.Fatal(err)
	}
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(client, "INCR visits\r\nGET greeting\r\nQUIT\r\n")
	for lines := bufio.NewScanner(client); lines.Scan(); {
		fmt.Println(lines.Text())
	}

	// Shut the server down before the store is closed.
	if err := server.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// :1
	// $5
	// hello
	// +OK
}
