package resp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redykv/redykv/internal/testrun"
)

// goRedis returns a client of go-redis.
func goRedis(t *testing.T, addr string, protocol int) *redis.Client {
	t.Helper()
	db := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, ClientName: "test"})
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// TestGoRedisDatabases: the connections of a client of go-redis use its database.
func TestGoRedisDatabases(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	main := goRedis(t, addr, 3)
	other := redis.NewClient(&redis.Options{Addr: addr, DB: 1})
	defer func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := errors.Join(main.Set(ctx, "a", "0", 0).Err(), other.Set(ctx, "a", "1", 0).Err(), other.Set(ctx, "b", "1", 0).Err()); err != nil {
		t.Fatal(err)
	}
	if v, err := other.Get(ctx, "a").Result(); err != nil || v != "1" {
		t.Error(v, err)
	}
	if n, err := other.DBSize(ctx).Result(); err != nil || n != 2 {
		t.Error(n, err)
	}
	if moved, err := other.Move(ctx, "b", 0).Result(); err != nil || !moved {
		t.Error(moved, err)
	}
	if n, err := main.Copy(ctx, "b", "c", 1, false).Result(); err != nil || n != 1 {
		t.Error(n, err)
	}
	if info, err := other.ClientInfo(ctx).Result(); err != nil || info.DB != 1 {
		t.Error(info, err)
	}
	if err := other.FlushDB(ctx).Err(); err != nil {
		t.Error(err)
	}
	if keys, err := main.Keys(ctx, "*").Result(); err != nil || len(keys) != 2 {
		t.Error(keys, err)
	}
	if keys, err := other.Keys(ctx, "*").Result(); err != nil || len(keys) != 0 {
		t.Error(keys, err)
	}
}

// TestGoRedis: go-redis connects and parses all replies.
func TestGoRedis(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint(protocol), func(t *testing.T) {
			db := goRedis(t, addr, protocol)
			if err := db.FlushDB(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			if err := db.Set(ctx, "a", "1", time.Hour).Err(); err != nil {
				t.Error(err)
			}
			if v, err := db.Get(ctx, "a").Int(); err != nil || v != 1 {
				t.Error(v, err)
			}
			if _, err := db.Get(ctx, "none").Result(); !errors.Is(err, redis.Nil) {
				t.Error(err)
			}
			if d, err := db.TTL(ctx, "a").Result(); err != nil || d < 59*time.Minute || d > time.Hour {
				t.Error(d, err)
			}
			if n, err := db.HSet(ctx, "h", "f", "1", "g", "2").Result(); err != nil || n != 2 {
				t.Error(n, err)
			}
			if h, err := db.HGetAll(ctx, "h").Result(); err != nil || len(h) != 2 || h["g"] != "2" {
				t.Error(h, err)
			}
			if v, err := db.MGet(ctx, "a", "none").Result(); err != nil || v[0] != "1" || v[1] != nil {
				t.Error(v, err)
			}
			if f, err := db.IncrByFloat(ctx, "f", 1.5).Result(); err != nil || f != 1.5 {
				t.Error(f, err)
			}
			keys := map[string]bool{}
			for it := db.Scan(ctx, 0, "*", 10).Iterator(); it.Next(ctx); {
				keys[it.Val()] = true
			}
			if n, err := db.DBSize(ctx).Result(); err != nil || n != 3 || len(keys) != 3 {
				t.Error(n, keys, err)
			}
			// A transaction that fails because of another client is retried.
			tries := 0
			add := func(tx *redis.Tx) error {
				n, err := tx.Get(ctx, "a").Int()
				if err != nil {
					return err
				}
				if tries++; tries == 1 {
					if err := db.Incr(ctx, "a").Err(); err != nil {
						return err
					}
				}
				_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
					p.Set(ctx, "a", n+10, redis.KeepTTL)
					return nil
				})
				return err
			}
			if err := db.Watch(ctx, add, "a"); !errors.Is(err, redis.TxFailedErr) {
				t.Error(err)
			}
			if err := db.Watch(ctx, add, "a"); err != nil {
				t.Error(err)
			}
			if v, err := db.Get(ctx, "a").Result(); err != nil || v != "12" {
				t.Error(v, err)
			}
			if c, err := db.Command(ctx).Result(); err != nil || c["get"] == nil || c["get"].FirstKeyPos != 1 || !c["get"].ReadOnly {
				t.Error(c["get"], err)
			}
			if info, err := db.ClientInfo(ctx).Result(); err != nil || info.Name != "test" || info.LibName == "" {
				t.Error(info, err)
			}
			if h, err := db.Info(ctx, "keyspace").Result(); err != nil || h != "# Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=0\r\n" {
				t.Error(h, err)
			}
			if l, err := db.SlowLogGet(ctx, 10).Result(); err != nil {
				t.Error(l, err)
			}
		})
	}
}

// TestGoRedisQueue: producers and consumers of go-redis share a queue and a sorted set of delayed jobs.
func TestGoRedisQueue(t *testing.T) {
	const jobs = 100
	_, addr := start(t, inMemory(), Options{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, protocol := range []int{2, 3} {
		db := goRedis(t, addr, protocol)
		done := make(chan error, 2)
		for range 2 {
			go func() {
				for range jobs / 2 {
					job, err := db.BLMove(ctx, "queue", "working", "LEFT", "RIGHT", 0).Result()
					if err == nil {
						err = db.LRem(ctx, "working", 1, job).Err()
					}
					if err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for i := range jobs {
			if err := db.ZAdd(ctx, "delayed", redis.Z{Score: float64(i), Member: fmt.Sprint("job", i)}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for range jobs {
			z, err := db.BZPopMin(ctx, 0, "delayed").Result()
			if err != nil {
				t.Fatal(err)
			}
			if err := db.RPush(ctx, "queue", z.Member).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(testrun.Receive(t, "a worker ends", done), testrun.Receive(t, "a worker ends", done)); err != nil {
			t.Error(err)
		}
		if n, err := db.Exists(ctx, "queue", "working", "delayed").Result(); err != nil || n != 0 {
			t.Error(n, err)
		}
		if err := db.Do(ctx, "BLPOP", "queue", "0.01").Err(); !errors.Is(err, redis.Nil) {
			t.Error(err)
		}
	}
}
