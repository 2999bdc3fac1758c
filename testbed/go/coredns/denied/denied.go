// Package denied is a CoreDNS plugin that denies the existence of names listed
// in a file, to see what depends on them.
//
//	denied FILE
//
// Each line of FILE denies one name and everything below it; a line with a
// single dot denies every name. No FILE denies nothing. FILE is read for each
// query that the cache did not answer, so a change has effect at once.
package denied

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

const name = "denied"

// The seconds for which others may remember a denial.
const negativeTTL = 30

func init() { plugin.Register(name, setup) }

func setup(c *caddy.Controller) error {
	file, err := parse(c)
	if err != nil {
		return plugin.Error(name, err)
	}
	config := dnsserver.GetConfig(c)
	config.AddPlugin(func(next plugin.Handler) plugin.Handler {
		return &denied{next: next, zone: config.Zone, file: file}
	})
	return nil
}

func parse(c *caddy.Controller) (string, error) {
	var file string
	for c.Next() {
		arguments := c.RemainingArgs()
		if file != "" || len(arguments) != 1 || c.NextBlock() {
			return "", c.ArgErr()
		}
		file = arguments[0]
	}
	return file, nil
}

type denied struct {
	next plugin.Handler
	zone string
	file string
}

func (d *denied) Name() string { return name }

func (d *denied) ServeDNS(ctx context.Context, w dns.ResponseWriter, query *dns.Msg) (int, error) {
	listed, err := names(d.file)
	if err != nil {
		return dns.RcodeServerFailure, plugin.Error(name, err)
	}
	state := request.Request{W: w, Req: query}
	if plugin.Zones(listed).Matches(state.Name()) == "" {
		return plugin.NextOrFailure(name, d.next, ctx, w, query)
	}
	answer := new(dns.Msg)
	answer.SetRcode(query, dns.RcodeNameError)
	answer.Authoritative = true
	answer.Ns = []dns.RR{d.startOfAuthority()}
	return dns.RcodeNameError, w.WriteMsg(answer)
}

// startOfAuthority goes with every denial: without it, nobody may remember one.
func (d *denied) startOfAuthority() dns.RR {
	below := func(label string) string { return label + "." + strings.TrimPrefix(d.zone, ".") }
	return &dns.SOA{
		Hdr:     dns.RR_Header{Name: d.zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: negativeTTL},
		Ns:      below("ns.dns"),
		Mbox:    below("hostmaster"),
		Serial:  1,
		Refresh: 7200,
		Retry:   1800,
		Expire:  86400,
		Minttl:  negativeTTL,
	}
}

func names(file string) ([]string, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var listed []string
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" {
			listed = append(listed, dns.CanonicalName(line))
		}
	}
	return listed, nil
}
