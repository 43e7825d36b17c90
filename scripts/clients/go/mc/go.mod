module memlite.test/clients/mc

go 1.22

require (
	github.com/memcachier/mc/v3 v3.0.3
	memlite.test/clients v0.0.0
)

replace memlite.test/clients => ../
