// A program that checks a server with gomemcache, by the text protocol.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"memlite.test/clients/checks"
)

type client struct{ *memcache.Client }

func main() { checks.Main(connect) }

func connect(server checks.Server) (checks.Client, error) {
	library := memcache.New(server.Address)
	library.Timeout = 10 * time.Second
	library.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		var conn net.Conn
		var err error
		if server.TLS != nil {
			conn, err = (&tls.Dialer{Config: server.TLS}).DialContext(ctx, network, address)
		} else {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		}
		if err == nil && server.User != "" {
			err = login(conn, server.User+" "+server.Password)
		}
		return conn, err
	}
	return client{library}, nil
}

// login authenticates in the text protocol: the first request is a set of user and password.
func login(conn net.Conn, token string) error {
	fmt.Fprintf(conn, "set login 0 0 %d\r\n%s\r\n", len(token), token)
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && line != "STORED\r\n" {
		err = errors.New(line)
	}
	return err
}

func mapped(err error) error {
	switch err {
	case memcache.ErrCacheMiss:
		return checks.ErrMiss
	case memcache.ErrNotStored, memcache.ErrCASConflict:
		return checks.ErrNotStored
	}
	return err
}

func item(got *memcache.Item, err error) (checks.Item, error) {
	if err != nil {
		return checks.Item{}, mapped(err)
	}
	return checks.Item{Value: got.Value, Flags: got.Flags, CAS: got.CasID}, nil
}

func its(key string, item checks.Item, ttl int) *memcache.Item {
	return &memcache.Item{
		Key: key, Value: item.Value, Flags: item.Flags, CasID: item.CAS, Expiration: int32(ttl),
	}
}

func (c client) Get(key string) (checks.Item, error) { return item(c.Client.Get(key)) }

func (c client) GetMany(keys []string) (map[string]checks.Item, error) {
	found, err := c.GetMulti(keys)
	items := map[string]checks.Item{}
	for key, value := range found {
		items[key], _ = item(value, nil)
	}
	return items, err
}

func (c client) Set(key string, item checks.Item, ttl int) error {
	return mapped(c.Client.Set(its(key, item, ttl)))
}

func (c client) Add(key string, item checks.Item, ttl int) error {
	return mapped(c.Client.Add(its(key, item, ttl)))
}

func (c client) Replace(key string, item checks.Item, ttl int) error {
	return mapped(c.Client.Replace(its(key, item, ttl)))
}

func (c client) Append(key string, value []byte) error {
	return mapped(c.Client.Append(&memcache.Item{Key: key, Value: value}))
}

func (c client) Prepend(key string, value []byte) error {
	return mapped(c.Client.Prepend(&memcache.Item{Key: key, Value: value}))
}

func (c client) CompareAndSwap(key string, item checks.Item) error {
	return mapped(c.Client.CompareAndSwap(its(key, item, 0)))
}

func (c client) Increment(key string, delta uint64) (uint64, error) {
	value, err := c.Client.Increment(key, delta)
	return value, mapped(err)
}

func (c client) Decrement(key string, delta uint64) (uint64, error) {
	value, err := c.Client.Decrement(key, delta)
	return value, mapped(err)
}

func (c client) IncrementOr(string, uint64, uint64) (uint64, error) {
	return 0, checks.ErrUnsupported
}

func (c client) Touch(key string, ttl int) error { return mapped(c.Client.Touch(key, int32(ttl))) }

func (c client) GetAndTouch(key string, ttl int) (checks.Item, error) {
	return item(c.Client.GetAndTouch(key, int32(ttl)))
}

func (c client) Delete(key string) error { return mapped(c.Client.Delete(key)) }

func (c client) Flush() error { return c.FlushAll() }

func (c client) Stats() (map[string]string, error) { return nil, checks.ErrUnsupported }

// Version is requested by Ping, which does not return it.
func (c client) Version() (string, error) { return "0.0", c.Ping() }
