// A program that checks a server with mc, by the binary protocol.
package main

import (
	"time"

	"github.com/memcachier/mc/v3"

	"memlite.test/clients/checks"
)

type client struct{ *mc.Client }

func main() { checks.Main(connect) }

func connect(server checks.Server) (checks.Client, error) {
	config := mc.DefaultConfig()
	config.ConnectionTimeout = 10 * time.Second
	library := mc.NewMCwithConfig(server.Address, server.User, server.Password, config)
	return client{library}, library.NoOp()
}

func mapped(err error) error {
	switch err {
	case mc.ErrNotFound:
		return checks.ErrMiss
	case mc.ErrKeyExists, mc.ErrValueNotStored:
		return checks.ErrNotStored
	}
	return err
}

func item(value string, flags uint32, cas uint64, err error) (checks.Item, error) {
	return checks.Item{Value: []byte(value), Flags: flags, CAS: cas}, mapped(err)
}

func (c client) Get(key string) (checks.Item, error) { return item(c.Client.Get(key)) }

func (c client) GetMany([]string) (map[string]checks.Item, error) {
	return nil, checks.ErrUnsupported
}

func (c client) Set(key string, item checks.Item, ttl int) error {
	_, err := c.Client.Set(key, string(item.Value), item.Flags, uint32(ttl), 0)
	return mapped(err)
}

func (c client) Add(key string, item checks.Item, ttl int) error {
	_, err := c.Client.Add(key, string(item.Value), item.Flags, uint32(ttl))
	return mapped(err)
}

func (c client) Replace(key string, item checks.Item, ttl int) error {
	_, err := c.Client.Replace(key, string(item.Value), item.Flags, uint32(ttl), 0)
	if err == mc.ErrNotFound {
		return checks.ErrNotStored // how the protocol reports it
	}
	return mapped(err)
}

func (c client) Append(key string, value []byte) error {
	_, err := c.Client.Append(key, string(value), 0)
	return mapped(err)
}

func (c client) Prepend(key string, value []byte) error {
	_, err := c.Client.Prepend(key, string(value), 0)
	return mapped(err)
}

func (c client) CompareAndSwap(key string, item checks.Item) error {
	_, err := c.Client.Set(key, string(item.Value), item.Flags, 0, item.CAS)
	return mapped(err)
}

// noInitialValue is the expiration that tells the server not to create an item.
const noInitialValue = 0xffffffff

func (c client) Increment(key string, delta uint64) (uint64, error) {
	value, _, err := c.Incr(key, delta, 0, noInitialValue, 0)
	return value, mapped(err)
}

func (c client) Decrement(key string, delta uint64) (uint64, error) {
	value, _, err := c.Decr(key, delta, 0, noInitialValue, 0)
	return value, mapped(err)
}

func (c client) IncrementOr(key string, delta, initial uint64) (uint64, error) {
	value, _, err := c.Incr(key, delta, initial, 0, 0)
	return value, mapped(err)
}

func (c client) Touch(key string, ttl int) error {
	_, err := c.Client.Touch(key, uint32(ttl))
	return mapped(err)
}

func (c client) GetAndTouch(key string, ttl int) (checks.Item, error) {
	return item(c.GAT(key, uint32(ttl)))
}

func (c client) Delete(key string) error { return mapped(c.Del(key)) }

func (c client) Flush() error { return c.Client.Flush(0) }

func (c client) Stats() (map[string]string, error) {
	servers, err := c.Client.Stats()
	for _, fields := range servers {
		return fields, err
	}
	return nil, err
}

func (c client) Version() (string, error) {
	servers, err := c.Client.Version()
	for _, number := range servers {
		return number, err
	}
	return "", err
}
