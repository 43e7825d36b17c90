// A program that checks a server with Couchbase's gomemcached, by the binary protocol.
package main

import (
	"encoding/binary"
	"errors"

	"github.com/couchbase/gomemcached"
	memcached "github.com/couchbase/gomemcached/client"

	"memlite.test/clients/checks"
)

type client struct{ *memcached.Client }

func main() { checks.Main(connect) }

func connect(server checks.Server) (checks.Client, error) {
	var library *memcached.Client
	var err error
	if server.TLS != nil {
		library, err = memcached.ConnectTLS("tcp", server.Address, server.TLS)
	} else {
		library, err = memcached.Connect("tcp", server.Address)
	}
	if err == nil && server.User != "" {
		_, err = library.Auth(server.User, server.Password)
	}
	return client{library}, err
}

func mapped(response *gomemcached.MCResponse, err error) (checks.Item, error) {
	var refusal *gomemcached.MCResponse
	if errors.As(err, &refusal) {
		switch refusal.Status {
		case gomemcached.KEY_ENOENT:
			return checks.Item{}, checks.ErrMiss
		case gomemcached.KEY_EEXISTS, gomemcached.NOT_STORED:
			return checks.Item{}, checks.ErrNotStored
		}
	}
	if err != nil {
		return checks.Item{}, err
	}
	item := checks.Item{Value: response.Body, CAS: response.Cas}
	if len(response.Extras) == 4 {
		item.Flags = binary.BigEndian.Uint32(response.Extras)
	}
	return item, nil
}

// ask sends a request the library has no method for.
func (c client) ask(
	opcode gomemcached.CommandCode, key string, extras, body []byte,
) (checks.Item, error) {
	return mapped(c.Send(&gomemcached.MCRequest{
		Opcode: opcode, Key: []byte(key), Extras: extras, Body: body,
	}))
}

func (c client) Get(key string) (checks.Item, error) { return mapped(c.Client.Get(0, key)) }

func (c client) GetMany(keys []string) (map[string]checks.Item, error) {
	found := map[string]*gomemcached.MCResponse{}
	err := c.GetBulk(0, keys, found, nil)
	items := map[string]checks.Item{}
	for key, response := range found {
		items[key], _ = mapped(response, nil)
	}
	return items, err
}

func (c client) Set(key string, item checks.Item, ttl int) error {
	_, err := mapped(c.Client.Set(0, key, int(item.Flags), ttl, item.Value))
	return err
}

func (c client) Add(key string, item checks.Item, ttl int) error {
	_, err := mapped(c.Client.Add(0, key, int(item.Flags), ttl, item.Value))
	if err == checks.ErrMiss {
		return errors.New("add is answered with a miss")
	}
	return err
}

func (c client) Replace(key string, item checks.Item, ttl int) error {
	extras := binary.BigEndian.AppendUint32(nil, item.Flags)
	extras = binary.BigEndian.AppendUint32(extras, uint32(ttl))
	_, err := c.ask(gomemcached.REPLACE, key, extras, item.Value)
	if err == checks.ErrMiss {
		return checks.ErrNotStored // how the protocol reports it
	}
	return err
}

func (c client) Append(key string, value []byte) error {
	_, err := mapped(c.Client.Append(0, key, value))
	return err
}

func (c client) Prepend(key string, value []byte) error {
	_, err := c.ask(gomemcached.PREPEND, key, nil, value)
	return err
}

func (c client) CompareAndSwap(key string, item checks.Item) error {
	_, err := mapped(c.SetCas(0, key, int(item.Flags), 0, item.CAS, item.Value))
	return err
}

// noInitialValue is the expiration that tells the server not to create an item.
const noInitialValue = 0xffffffff

func (c client) Increment(key string, delta uint64) (uint64, error) {
	value, err := c.Incr(0, key, delta, 0, noInitialValue)
	_, err = mapped(&gomemcached.MCResponse{}, err)
	return value, err
}

func (c client) Decrement(key string, delta uint64) (uint64, error) {
	value, err := c.Decr(0, key, delta, 0, noInitialValue)
	_, err = mapped(&gomemcached.MCResponse{}, err)
	return value, err
}

func (c client) IncrementOr(key string, delta, initial uint64) (uint64, error) {
	return c.Incr(0, key, delta, initial, 0)
}

func (c client) Touch(key string, ttl int) error {
	const touch = gomemcached.CommandCode(0x1c)
	_, err := c.ask(touch, key, binary.BigEndian.AppendUint32(nil, uint32(ttl)), nil)
	return err
}

func (c client) GetAndTouch(key string, ttl int) (checks.Item, error) {
	return mapped(c.Client.GetAndTouch(0, key, ttl))
}

func (c client) Delete(key string) error {
	_, err := mapped(c.Del(0, key))
	return err
}

func (c client) Flush() error {
	_, err := c.ask(gomemcached.FLUSH, "", nil, nil)
	return err
}

func (c client) Stats() (map[string]string, error) { return c.StatsMap("") }

func (c client) Version() (string, error) {
	item, err := c.ask(gomemcached.VERSION, "", nil, nil)
	return string(item.Value), err
}
