package resp

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redykv/redykv/internal/testrun"
)

// until sends a PING and returns what the connection receives before its reply.
func (p *peer) until(token string) (received []string) {
	p.t.Helper()
	p.send(encode("PING", token))
	for quoted := strconv.Quote(token); ; {
		got := p.reply()
		if got == quoted || got == `["pong" `+quoted+`]` {
			return received
		}
		received = append(received, got)
	}
}

// pubsubShapes are commands of publish and subscribe, and some others, as in shapes.
var pubsubShapes = strings.Split(strings.TrimSpace(`
subscribe topics
subscribe topics
unsubscribe topics
unsubscribe
psubscribe topics
psubscribe topics
punsubscribe topics
punsubscribe
ssubscribe topics
sunsubscribe topics
sunsubscribe
publish topic value
publish topic value
publish topic value
publish topic value
spublish topic value
spublish topic value
pubsub channels
pubsub channels topic
pubsub channels topic topic
pubsub shardchannels topic
pubsub numsub topics
pubsub numsub
pubsub shardnumsub topics
pubsub numpat
pubsub nonsense
pubsub
publish topic
subscribe
ping
ping value
ping value value
get topic
nonsense topic
multi
exec
client getname
config get nonsense
reset
hello protocol
hello protocol`), "\n")

func (c commander) topic() string {
	return c.one("a", "b", "ab", "a*", "*", "?", "[ab]", "", "\x00\r\n")
}

// pubsubCommand returns a random command. In a transaction, each command has one reply, and
// none publishes: Redis 7.0 puts the messages for the client itself between the replies.
func (c commander) pubsubCommand(inMulti bool) (args []string) {
	for _, kind := range strings.Fields(pubsubShapes[c.IntN(len(pubsubShapes))]) {
		switch kind {
		case "topic":
			args = append(args, c.topic())
		case "topics":
			args = append(args, c.topic())
			if !inMulti {
				args = append(args, c.some(2, func() []string { return []string{c.topic()} })...)
			}
		case "protocol":
			args = append(args, c.one("2", "3"))
		default:
			args = append(args, c.arguments(kind)...)
		}
	}
	again := strings.HasSuffix(args[0], "unsubscribe") && len(args) == 1 || slices.Contains([]string{"publish", "spublish", "multi", "exec", "hello", "reset"}, args[0])
	if inMulti && (again || args[0] == "pubsub") || !inMulti && args[0] == "multi" {
		return c.pubsubCommand(inMulti)
	}
	return args
}

var (
	redisNumbers = regexp.MustCompile(`"version" "[^"]*"`)
	changedTopic = regexp.MustCompile(`^((?:push)?\["[ps]?(?:un)?subscribe") (.*) (:[0-9]+\])$`)
)

// normal returns what a connection has received for a command in a form that does not depend
// on the order of topics and of messages for the publisher itself.
func normal(command []string, received []string) string {
	var names []string
	for i, text := range received {
		text = redisNumbers.ReplaceAllString(connectionID.ReplaceAllString(text, "id"), "version")
		switch {
		case command[0] == "pubsub" && len(command) > 1 && strings.HasSuffix(command[1], "channels"):
			text = sorted(text)
		case strings.HasSuffix(command[0], "unsubscribe"):
			if m := changedTopic.FindStringSubmatch(text); m != nil {
				names = append(names, m[2])
				text = m[1] + m[3]
			}
		}
		received[i] = text
	}
	if strings.HasSuffix(command[0], "publish") {
		slices.Sort(received)
	}
	slices.Sort(names)
	return strings.Join(append(received, names...), "\n")
}

// TestPubSubAsRedis sends random commands to this server and to Redis, on two connections each,
// and compares all replies and messages.
func TestPubSubAsRedis(t *testing.T) {
	for name, loops := range map[string]int{"loops": 1, "goroutines": -1} {
		t.Run(name, func(t *testing.T) {
			redis, redisToo := startRedis(t)
			_, addr := start(t, inMemory(), Options{Loops: loops})
			theirs, ours := []*peer{redis, redisToo}, []*peer{dial(t, addr), dial(t, addr)}
			c := newCommander(t, 1)
			var before [][]string
			for step := range compared(5000, 4) {
				of := c.IntN(2)
				commands := [][]string{c.pubsubCommand(false)}
				if c.IntN(10) == 0 {
					commands = [][]string{{"multi"}}
					for range c.IntN(4) {
						commands = append(commands, c.pubsubCommand(true))
					}
					commands = append(commands, []string{"exec"})
				}
				before = append(before, commands...)
				var pipeline strings.Builder
				for _, command := range commands {
					pipeline.WriteString(encode(command...))
				}
				for _, peers := range [][]*peer{theirs, ours} {
					peers[of].send(pipeline.String())
				}
				for _, at := range []int{of, 1 - of} {
					theirs[at].goOn()
					ours[at].goOn()
					token := fmt.Sprint("token", step)
					want, got := normal(commands[0], theirs[at].until(token)), normal(commands[0], ours[at].until(token))
					if got != want {
						testrun.Wrong(t, "step %d, connection %d of %d: %q\nafter %q\n  got %s\nRedis %s", step, at, of, commands, before[max(len(before)-30, 0):], got, want)
					}
				}
			}
		})
	}
}

// TestPubSubLimitsAsRedis compares the setting of the limits of subscribers' queues.
func TestPubSubLimitsAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	classes := regexp.MustCompile(`normal \d+ \d+ \d+ slave \d+ \d+ \d+ `)
	for _, value := range []string{
		"pubsub 1 2 3", "pubsub 1mb 1kb 5", "pubsub 1gb 2g 5", "PUBSUB 1m 1k 0", "pubsub 5b 0 0", "pubsub 0 0 0", "normal 0 0 0 replica 0 0 0 pubsub 7 7 7", "",
		"pubsub 1 2", "foo 1 2 3", "pubsub x 1 1", "pubsub 1 1 -1", "pubsub 1 1 x", "master 1 1 1", "pubsub 1.5mb 0 0", "pubsub -1 0 0", "pubsub 1 mb 1", "pubsub 007 1 007", "pubsub +1 1 1", "pubsub 1 1 +1",
	} {
		for _, command := range [][]string{{"CONFIG", "SET", "client-output-buffer-limit", value}, {"CONFIG", "GET", "client-output-buffer-limit"}} {
			want, got := redis.do(command...), ours.do(command...)
			if classes.ReplaceAllString(got, "") != classes.ReplaceAllString(want, "") {
				t.Errorf("%q\n  got %s\nRedis %s", command, got, want)
			}
		}
	}
	if got := ours.do("CONFIG", "SET", "client-output-buffer-limit", "normal 1 1 1"); !strings.Contains(got, errLimitOther.Error()) {
		t.Error(got)
	}
}

// TestPubSubCommandsAsRedis compares what COMMAND INFO says about the commands.
func TestPubSubCommandsAsRedis(t *testing.T) {
	redis, _ := startRedis(t)
	_, addr := start(t, inMemory(), Options{})
	ours := dial(t, addr)
	for _, name := range []string{
		"subscribe", "unsubscribe", "psubscribe", "punsubscribe", "publish", "ssubscribe", "sunsubscribe", "spublish",
		"pubsub|channels", "pubsub|numsub", "pubsub|numpat", "pubsub|shardchannels", "pubsub|shardnumsub", "pubsub|help",
	} {
		if want, got := redis.do("COMMAND", "INFO", name), ours.do("COMMAND", "INFO", name); got != want {
			t.Errorf("%s\n  got %s\nRedis %s", name, got, want)
		}
		// Redis has no channels among the keys.
		if want, got := redis.do("COMMAND", "GETKEYS", name, "a", "b"), ours.do("COMMAND", "GETKEYS", name, "a", "b"); got != want {
			t.Errorf("keys of %s\n  got %s\nRedis %s", name, got, want)
		}
	}
}

// TestPublishInTransaction: a client receives its own messages after the reply of EXEC, as with
// Redis 7.2, and none of a channel that the transaction has left.
func TestPublishInTransaction(t *testing.T) {
	pubsubVariants(t, func(t *testing.T, _ *Server, connect func() *peer) {
		p := connect()
		p.do("HELLO", "3")
		p.send(encode("SUBSCRIBE", "a", "b") + encode("PUBLISH", "a", "0") + encode("ECHO", "x"))
		p.expects(`push["subscribe" "a" :1]`, `push["subscribe" "b" :2]`, ":1", `push["message" "a" "0"]`, `"x"`)
		p.send(encode("MULTI") + encode("PUBLISH", "a", "1") + encode("PUBLISH", "b", "2") + encode("UNSUBSCRIBE", "a") + encode("EXEC") + encode("ECHO", "y"))
		p.expects("+OK", "+QUEUED", "+QUEUED", "+QUEUED", `[:1 :1 push["unsubscribe" "a" :1]]`, `push["message" "b" "2"]`, `"y"`)
	})
}

// TestGoRedisSubscribes: go-redis subscribes and receives messages.
func TestGoRedisSubscribes(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint(protocol), func(t *testing.T) {
			db := goRedis(t, addr, protocol)
			sub := db.Subscribe(ctx, "a", "b")
			shard := db.SSubscribe(ctx, "s")
			for _, s := range []*redis.PubSub{sub, shard} {
				defer func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}()
			}
			if err := sub.PSubscribe(ctx, "p*"); err != nil {
				t.Fatal(err)
			}
			for s, want := range map[*redis.PubSub]int{sub: 3, shard: 1} {
				for range want {
					if got, err := s.Receive(ctx); err != nil {
						t.Fatal(got, err)
					}
				}
			}
			if n, err := db.PubSubNumSub(ctx, "a", "none").Result(); err != nil || n["a"] != 1 || n["none"] != 0 {
				t.Error(n, err)
			}
			if n, err := db.PubSubNumPat(ctx).Result(); err != nil || n != 1 {
				t.Error(n, err)
			}
			if all, err := db.PubSubChannels(ctx, "*").Result(); err != nil || len(all) != 2 {
				t.Error(all, err)
			}
			for _, channel := range []string{"a", "pq"} {
				if n, err := db.Publish(ctx, channel, "to "+channel).Result(); err != nil || n != 1 {
					t.Error(n, err)
				}
				if m, err := sub.ReceiveMessage(ctx); err != nil || m.Channel != channel || m.Payload != "to "+channel {
					t.Error(m, err)
				}
			}
			if n, err := db.SPublish(ctx, "s", "m").Result(); err != nil || n != 1 {
				t.Error(n, err)
			}
			if m, err := shard.ReceiveMessage(ctx); err != nil || m.Payload != "m" {
				t.Error(m, err)
			}
			if err := sub.Unsubscribe(ctx, "a"); err != nil {
				t.Error(err)
			}
			if got, err := sub.Receive(ctx); err != nil {
				t.Error(got, err)
			}
			if n, err := db.Publish(ctx, "a", "m").Result(); err != nil || n != 0 {
				t.Error(n, err)
			}
		})
	}
}
