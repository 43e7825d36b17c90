// Package checks tries everything a client library can do on a server, and reports unexpected results.
package checks

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// The results of a client other than values. A library's own errors are mapped to these.
var (
	ErrMiss        = errors.New("no such item")
	ErrNotStored   = errors.New("not stored")
	ErrUnsupported = errors.New("not in this library")
)

// Item is a value with its metadata.
type Item struct {
	Value []byte
	Flags uint32
	CAS   uint64
}

// Client is one library, connected; times to live are in seconds.
type Client interface {
	Get(key string) (Item, error)
	GetMany(keys []string) (map[string]Item, error)
	Set(key string, item Item, ttl int) error
	Add(key string, item Item, ttl int) error
	Replace(key string, item Item, ttl int) error
	Append(key string, value []byte) error
	Prepend(key string, value []byte) error
	CompareAndSwap(key string, item Item) error
	Increment(key string, delta uint64) (uint64, error)
	Decrement(key string, delta uint64) (uint64, error)
	IncrementOr(key string, delta, initial uint64) (uint64, error)
	Touch(key string, ttl int) error
	GetAndTouch(key string, ttl int) (Item, error)
	Delete(key string) error
	Flush() error
	Stats() (map[string]string, error)
	Version() (string, error)
}

type check struct {
	name string
	run  func(Client) error
}

var all = []check{
	{"set and get", setAndGet},
	{"add", add},
	{"replace", replace},
	{"append and prepend", appendAndPrepend},
	{"cas", compareAndSwap},
	{"incr and decr", counters},
	{"incr with initial value", initialValue},
	{"touch", touch},
	{"gat", getAndTouch},
	{"delete", remove},
	{"multi-get", multiGet},
	{"flags", flags},
	{"large value", largeValue},
	{"too large", tooLarge},
	{"odd keys", oddKeys},
	{"expiry", expiry},
	{"stats", stats},
	{"version", version},
	{"flush", flush},
}

// same returns an error unless the result is the expected one.
func same(what string, got, want any) error {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%s: %.80v is not %.80v", what, got, want)
	}
	return nil
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// is returns an error unless err is the expected one.
func is(what string, err, want error) error {
	if errors.Is(err, ErrUnsupported) {
		return err
	}
	if !errors.Is(err, want) {
		return fmt.Errorf("%s: %v is not %v", what, err, want)
	}
	return nil
}

// holds returns an error unless the item has this value.
func holds(c Client, key, want string) error {
	item, err := c.Get(key)
	return first(err, same("get "+key, string(item.Value), want))
}

func text(value string) Item { return Item{Value: []byte(value)} }

func setAndGet(c Client) error {
	_, miss := c.Get("nothing")
	return first(
		is("get nothing", miss, ErrMiss),
		c.Set("key", text("value"), 0), holds(c, "key", "value"),
		c.Set("key", text("another"), 100), holds(c, "key", "another"),
		c.Set("empty", text(""), 0), holds(c, "empty", ""),
	)
}

func add(c Client) error {
	return first(
		c.Add("added", text("one"), 0),
		is("add once more", c.Add("added", text("two"), 0), ErrNotStored),
		holds(c, "added", "one"),
	)
}

func replace(c Client) error {
	return first(
		is("replace nothing", c.Replace("replaced", text("one"), 0), ErrNotStored),
		c.Set("replaced", text("one"), 0),
		c.Replace("replaced", text("two"), 0), holds(c, "replaced", "two"),
	)
}

func appendAndPrepend(c Client) error {
	return first(
		is("append to nothing", c.Append("joined", []byte("x")), ErrNotStored),
		c.Set("joined", text("b"), 0),
		c.Append("joined", []byte("c")), c.Prepend("joined", []byte("a")), holds(c, "joined", "abc"),
	)
}

func compareAndSwap(c Client) error {
	if err := c.Set("swapped", text("one"), 0); err != nil {
		return err
	}
	item, err := c.Get("swapped")
	if err != nil {
		return err
	}
	item.Value = []byte("two")
	late := item
	late.Value = []byte("three")
	return first(
		c.CompareAndSwap("swapped", item),
		is("cas once more", c.CompareAndSwap("swapped", late), ErrNotStored),
		holds(c, "swapped", "two"), c.Delete("swapped"),
		is("cas of nothing", c.CompareAndSwap("swapped", late), ErrMiss),
	)
}

func counters(c Client) error {
	err := c.Set("count", text("10"), 0)
	up, err1 := c.Increment("count", 5)
	down, err2 := c.Decrement("count", 3)
	floor, err3 := c.Decrement("count", 100)
	_, miss := c.Increment("nothing", 1)
	if err := first(
		err, err1, err2, err3, same("incr", up, 15), same("decr", down, 12),
		same("decr below 0", floor, 0), is("incr of nothing", miss, ErrMiss),
		c.Set("count", text("18446744073709551615"), 0),
	); err != nil {
		return err
	}
	wrapped, err := c.Increment("count", 2)
	if err := first(err, same("incr above 2**64", wrapped, 1), c.Set("count", text("word"), 0)); err != nil {
		return err
	}
	if _, err := c.Increment("count", 1); err == nil {
		return errors.New("incr of a word is not refused")
	}
	return holds(c, "count", "word")
}

func initialValue(c Client) error {
	begun, err1 := c.IncrementOr("begun", 5, 10)
	more, err2 := c.IncrementOr("begun", 5, 10)
	return first(err1, err2, same("at first", begun, 10), same("then", more, 15))
}

func touch(c Client) error {
	return first(
		is("touch nothing", c.Touch("touched", 100), ErrMiss),
		c.Set("touched", text("value"), 1), c.Touch("touched", 100), pause(), holds(c, "touched", "value"),
	)
}

func getAndTouch(c Client) error {
	_, miss := c.GetAndTouch("gat", 100)
	if err := first(is("gat nothing", miss, ErrMiss), c.Set("gat", text("value"), 1)); err != nil {
		return err
	}
	item, err := c.GetAndTouch("gat", 100)
	return first(err, same("gat", string(item.Value), "value"), pause(), holds(c, "gat", "value"))
}

func remove(c Client) error {
	err := first(c.Set("deleted", text("value"), 0), c.Delete("deleted"))
	_, miss := c.Get("deleted")
	return first(
		err, is("get", miss, ErrMiss), is("delete once more", c.Delete("deleted"), ErrMiss),
	)
}

func multiGet(c Client) error {
	keys := []string{"nothing"}
	for n := range 200 {
		key := fmt.Sprintf("many-%d", n)
		if err := c.Set(key, text(key), 0); err != nil {
			return err
		}
		keys = append(keys, key)
	}
	items, err := c.GetMany(keys)
	if err != nil {
		return err
	}
	for key, item := range items {
		if err := same(key, string(item.Value), key); err != nil {
			return err
		}
	}
	return same("items", len(items), 200)
}

func flags(c Client) error {
	if err := c.Set("flags", Item{Value: []byte("value"), Flags: 0xdeadbeef}, 0); err != nil {
		return err
	}
	item, err := c.Get("flags")
	return first(err, same("flags", item.Flags, uint32(0xdeadbeef)))
}

func largeValue(c Client) error {
	value := make([]byte, 1_000_000)
	if _, err := rand.Read(value); err != nil {
		return err
	}
	if err := c.Set("large", Item{Value: value}, 0); err != nil {
		return err
	}
	item, err := c.Get("large")
	if err == nil && !bytes.Equal(item.Value, value) {
		err = errors.New("it comes back changed")
	}
	return err
}

func tooLarge(c Client) error {
	if err := c.Set("large", Item{Value: make([]byte, 2_000_000)}, 0); err == nil {
		return errors.New("2 MB are not refused")
	}
	return first(c.Set("after", text("value"), 0), holds(c, "after", "value"))
}

func oddKeys(c Client) error {
	for _, key := range []string{strings.Repeat("k", 250), "!\"#$%&'()*+,/:;<=>?@[]^`{|}~", "schlüssel-鍵", "1"} {
		if err := first(c.Set(key, text(key), 0), holds(c, key, key)); err != nil {
			return fmt.Errorf("%.20s: %w", key, err)
		}
	}
	return nil
}

// keyTooLong needs a client of its own: in the binary protocol the server may close the connection.
func keyTooLong(connect func() (Client, error)) error {
	c, err := connect()
	if err == nil && c.Set(strings.Repeat("k", 251), text("value"), 0) == nil {
		err = errors.New("251 bytes are not refused")
	}
	return err
}

func expiry(c Client) error {
	if err := first(
		c.Set("soon", text("value"), 1), c.Set("then", text("value"), int(time.Now().Unix())+100),
		c.Set("past", text("value"), int(time.Now().Unix())-100),
		holds(c, "soon", "value"), holds(c, "then", "value"),
	); err != nil {
		return err
	}
	_, past := c.Get("past")
	err := pause()
	_, soon := c.Get("soon")
	return first(err, is("get past", past, ErrMiss), is("get soon", soon, ErrMiss))
}

// pause waits until items with a TTL of one second have expired.
func pause() error {
	time.Sleep(2100 * time.Millisecond)
	return nil
}

func stats(c Client) error {
	fields, err := c.Stats()
	if err == nil && (fields["curr_items"] == "" || fields["pid"] == "") {
		err = fmt.Errorf("no curr_items, no pid: %.80v", fields)
	}
	return err
}

func version(c Client) error {
	number, err := c.Version()
	if err == nil && !strings.Contains(number, ".") {
		err = fmt.Errorf("%q is no version", number)
	}
	return err
}

func flush(c Client) error {
	err := first(c.Set("flushed", text("value"), 0), c.Flush())
	_, miss := c.Get("flushed")
	return first(err, is("get", miss, ErrMiss))
}

// concurrent uses clients from many goroutines at once; some libraries need one client for each.
func concurrent(connect func() (Client, error)) error {
	failed := make(chan error, 50)
	var group sync.WaitGroup
	for worker := range cap(failed) {
		group.Add(1)
		go func() {
			defer group.Done()
			c, err := connect()
			for n := 0; err == nil && n < 20; n++ {
				key := fmt.Sprintf("worker-%d-%d", worker, n)
				err = first(c.Set(key, text(key), 0), holds(c, key, key))
			}
			failed <- err
		}()
	}
	group.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}
