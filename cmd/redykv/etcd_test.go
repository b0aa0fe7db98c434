package main

import (
	"context"
	"net/url"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/rogpeppe/go-internal/testscript"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
)

// TestEtcdScript runs testdata/etcd/*.txt, as TestScript runs its scripts. An etcd server asks
// for certificates and a login; $CATALOG is the URL of a catalog in it, $OTHER that of a
// catalog of another version, and $STRANGER one with a wrong password.
func TestEtcdScript(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{TLS: true})
	const user, password = "manager", "pass:word"
	server.RequirePasswords(user, password, "/")
	client := server.Client(user, password)
	defer func() { _ = client.Close() }()
	if _, err := client.Put(t.Context(), "/other/format", "redykv manager catalog 1"); err != nil {
		t.Fatal(err)
	}
	file := url.QueryEscape(server.File)
	at := "etcd+tls://" + url.UserPassword(user, password).String() + "@" + server.Address
	query := "?lease=10s&ca=" + url.QueryEscape(server.CA) + "&cert=" + file + "&key=" + file
	params := scripts("etcd")
	setup := params.Setup
	params.Setup = func(env *testscript.Env) error {
		env.Setenv("CATALOG", at+"/managers"+query)
		env.Setenv("OTHER", at+"/other"+query)
		env.Setenv("STRANGER", "etcd+tls://manager:wrong@"+server.Address+"/managers"+query)
		return setup(env)
	}
	testscript.Run(t, params)
	all, err := client.Get(t.Context(), "/other", clientv3.WithPrefix())
	if err != nil || len(all.Kvs) != 1 || all.Kvs[0].Version != 1 {
		t.Errorf("the catalog of another version is now %v, %v", all, err)
	}
}

// askTimeout bounds a call of one of several managers, which may be frozen.
var askTimeout = testrun.Patience(500 * time.Millisecond)

func cmdLeads(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, "leads VAR NAME...")
	again(ts, func() (string, bool) {
		var err error
		for _, name := range args[1:] {
			if ts.Value(processesKey{}).(processes)[name] == nil {
				continue // it was killed
			}
			ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
			_, err = access.Dial(ts.Getenv(name)).Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
			cancel()
			if err == nil {
				ts.Setenv(args[0], name)
				ts.Setenv(args[0]+"_URL", ts.Getenv(name))
				return name, true
			}
		}
		return "without a leader: " + err.Error(), false
	})
}
