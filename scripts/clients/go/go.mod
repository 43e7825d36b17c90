module memlite.test/clients

go 1.22

require (
	github.com/bradfitz/gomemcache v0.0.0-20260422231931-4d751bb6e37c
	github.com/couchbase/gomemcached v0.3.4
	github.com/memcachier/mc/v3 v3.0.3
)

require (
	github.com/couchbase/goutils v0.1.2 // indirect
	github.com/google/flatbuffers v24.3.25+incompatible // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	golang.org/x/crypto v0.32.0 // indirect
)
