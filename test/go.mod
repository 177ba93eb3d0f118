module epdns/test

go 1.26.0

require (
	github.com/miekg/dns v1.1.73
	golang.org/x/sys v0.47.0
)

require golang.org/x/net v0.57.0 // indirect
