package checks

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// Server is the address to connect to, and the credentials.
type Server struct {
	Address  string
	User     string
	Password string
	TLS      *tls.Config // nil: plaintext
}

// Main runs a program: PROGRAM HOST PORT, with TRY_USER, TRY_PASSWORD and TRY_CA in the environment.
// It prints a line for each check, and exits with 1 if one failed.
func Main(connect func(Server) (Client, error)) {
	server := Server{
		Address:  net.JoinHostPort(os.Args[1], os.Args[2]),
		User:     os.Getenv("TRY_USER"),
		Password: os.Getenv("TRY_PASSWORD"),
	}
	if file := os.Getenv("TRY_CA"); file != "" {
		text, err := os.ReadFile(file)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(text) {
			fmt.Fprintln(os.Stderr, "no certificates in", file, err)
			os.Exit(2)
		}
		server.TLS = &tls.Config{RootCAs: pool, ServerName: os.Args[1]}
	}
	failed := false
	tell := func(name string, err error) {
		switch {
		case err == nil:
			fmt.Println("ok", name)
		case errors.Is(err, ErrUnsupported):
			fmt.Println("without", name)
		default:
			fmt.Printf("FAILED %s: %v\n", name, err)
			failed = true
		}
	}
	client, err := connect(server)
	if err == nil {
		err = client.Flush()
	}
	tell("connect", err)
	if err == nil {
		for _, check := range all {
			tell(check.name, check.run(client))
		}
		another := func() (Client, error) { return connect(server) }
		tell("key too long", keyTooLong(another))
		tell("concurrent", concurrent(another))
		if server.User != "" {
			tell("wrong password", wrongPassword(connect, server))
		}
	}
	if failed {
		os.Exit(1)
	}
}

func wrongPassword(connect func(Server) (Client, error), server Server) error {
	server.Password += "x"
	client, err := connect(server)
	if err == nil {
		_, err = client.Get("key")
	}
	if err == nil || errors.Is(err, ErrMiss) {
		return errors.New("it is let in")
	}
	return nil
}
