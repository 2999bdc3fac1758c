// CoreDNS with the plugins that the testbed uses and one of its own. The stock
// program links every plugin, and with them the libraries of several clouds.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"

	_ "testbed/coredns/denied"
)

func main() {
	// A query passes the plugins in this order. Denials come behind the cache,
	// so that the cache keeps them as it would keep those of a real outage.
	dnsserver.Directives = []string{
		"reload", "bind", "health", "ready", "errors", "log", "cache", "denied", "kubernetes",
	}
	coremain.Run()
}
