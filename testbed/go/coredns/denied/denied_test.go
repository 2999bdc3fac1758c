package denied

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin/cache"
	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/pkg/response"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"
)

const service = "db-0.db.default.svc.cluster.local."

// exists stands for the plugins behind ours: it answers every query.
type exists struct{}

func (exists) Name() string { return "exists" }

func (exists) ServeDNS(_ context.Context, w dns.ResponseWriter, query *dns.Msg) (int, error) {
	answer := new(dns.Msg)
	answer.SetReply(query)
	answer.Answer = []dns.RR{test.A(query.Question[0].Name + " 5 IN A 10.244.1.2")}
	return dns.RcodeSuccess, w.WriteMsg(answer)
}

func newDenied(t *testing.T, lines string) *denied {
	t.Helper()
	d := &denied{next: exists{}, zone: "cluster.local.", file: filepath.Join(t.TempDir(), "names")}
	rewrite(t, d, lines)
	return d
}

func rewrite(t *testing.T, d *denied, lines string) {
	t.Helper()
	if err := os.WriteFile(d.file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
}

func ask(t *testing.T, d *denied, name string) *dns.Msg {
	t.Helper()
	query := new(dns.Msg)
	query.SetQuestion(name, dns.TypeA)
	recorder := dnstest.NewRecorder(&test.ResponseWriter{})
	if _, err := d.ServeDNS(t.Context(), recorder, query); err != nil {
		t.Fatal(err)
	}
	return recorder.Msg
}

func TestANameIsDeniedWithEverythingBelowIt(t *testing.T) {
	for _, c := range []struct {
		lines, name string
		rcode       int
	}{
		{"", service, dns.RcodeSuccess},
		{"\n  \n", service, dns.RcodeSuccess},
		{service, service, dns.RcodeNameError},
		{"db.default.svc.cluster.local\n", service, dns.RcodeNameError},
		{"other.cluster.local\ndb.default.svc.cluster.local\n", service, dns.RcodeNameError},
		{" DB.Default.svc.cluster.local\r\n", service, dns.RcodeNameError},
		{"db.default.svc.cluster.local", "DB-0.DB.DEFAULT.SVC.CLUSTER.LOCAL.", dns.RcodeNameError},
		{"b.default.svc.cluster.local", service, dns.RcodeSuccess},
		{"x." + service, service, dns.RcodeSuccess},
		{".", service, dns.RcodeNameError},
		{".", ".", dns.RcodeNameError},
	} {
		if got := ask(t, newDenied(t, c.lines), c.name).Rcode; got != c.rcode {
			t.Errorf("list %q, query %s: %s instead of %s", c.lines, c.name,
				dns.RcodeToString[got], dns.RcodeToString[c.rcode])
		}
	}
}

func TestWithoutTheFileNothingIsDenied(t *testing.T) {
	d := newDenied(t, ".")
	if err := os.Remove(d.file); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, d, service).Rcode; got != dns.RcodeSuccess {
		t.Errorf("got %s", dns.RcodeToString[got])
	}
}

func TestAFileThatCannotBeReadIsAnError(t *testing.T) {
	d := &denied{next: exists{}, file: t.TempDir()}
	rcode, err := d.ServeDNS(t.Context(), &test.ResponseWriter{}, new(dns.Msg))
	if rcode != dns.RcodeServerFailure || err == nil {
		t.Errorf("got %s, %v", dns.RcodeToString[rcode], err)
	}
}

func TestAChangeHasEffectAtOnce(t *testing.T) {
	d := newDenied(t, "aa.cluster.local")
	for range 100 {
		for name, rcode := range map[string]int{"aa": dns.RcodeNameError, "bb": dns.RcodeSuccess} {
			rewrite(t, d, "aa.cluster.local")
			if got := ask(t, d, name+".cluster.local.").Rcode; got != rcode {
				t.Fatalf("%s: %s", name, dns.RcodeToString[got])
			}
			rewrite(t, d, "bb.cluster.local")
			if got := ask(t, d, name+".cluster.local.").Rcode; got == rcode {
				t.Fatalf("%s after the change: %s", name, dns.RcodeToString[got])
			}
		}
	}
}

func TestADenialMayBeRemembered(t *testing.T) {
	for _, zone := range []string{"cluster.local.", "."} {
		d := newDenied(t, service)
		d.zone = zone
		answer := ask(t, d, service)
		if kind, _ := response.Typify(answer, time.Now()); kind != response.NameError {
			t.Errorf("zone %s: the cache sees %v", zone, kind)
		}
		soa, ok := answer.Ns[0].(*dns.SOA)
		if !ok || soa.Minttl != 30 || soa.Hdr.Ttl != 30 || soa.Hdr.Name != zone {
			t.Errorf("zone %s: %v", zone, answer.Ns)
		}
		if _, err := answer.Pack(); err != nil {
			t.Errorf("zone %s: %v", zone, err)
		}
	}
}

func TestTheCacheKeepsADenialAfterItsEnd(t *testing.T) {
	d := newDenied(t, service)
	c := cache.New()
	c.Next = d
	rcode := func() int {
		query := new(dns.Msg)
		query.SetQuestion(service, dns.TypeA)
		recorder := dnstest.NewRecorder(&test.ResponseWriter{})
		if _, err := c.ServeDNS(t.Context(), recorder, query); err != nil {
			t.Fatal(err)
		}
		return recorder.Msg.Rcode
	}
	rcode()
	rewrite(t, d, "")
	if got := rcode(); got != dns.RcodeNameError {
		t.Errorf("got %s", dns.RcodeToString[got])
	}
}

func TestTheCorefileNamesOneFile(t *testing.T) {
	for corefile, valid := range map[string]bool{
		"denied /run/names":                   true,
		"denied":                              false,
		"denied /run/names /run/more":         false,
		"denied /run/names {\n ttl 5\n}":      false,
		"denied /run/names\ndenied /run/more": false,
	} {
		file, err := parse(caddy.NewTestController("dns", corefile))
		if (err == nil) != valid || (valid && file != "/run/names") {
			t.Errorf("%q: %q, %v", corefile, file, err)
		}
	}
}
