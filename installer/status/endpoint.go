package status

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"

	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/endpoint/balancer"
	"airlift/installer/endpoint/service"
	"airlift/installer/endpoint/vip"
	"airlift/installer/host/systemd"
	"airlift/installer/node"
	"airlift/installer/pki"
)

// An Endpoint is how this host reaches the API servers, and its part in the virtual address. A part that
// the host does not have is nil; both are nil while the service does not run.
type Endpoint = service.State

// Names of problems with the endpoint, for scripts and for the doctor.
const (
	EndpointMissing     = "endpoint-missing"     // the cluster has one, and this host does not run its service
	EndpointSettings    = "endpoint-settings"    // this host has other settings than the cluster
	EndpointDisabled    = "endpoint-disabled"    // its service does not start at boot
	EndpointInterface   = "endpoint-interface"   // no interface has the subnet of the address
	EndpointConflict    = "endpoint-conflict"    // more than one host has the address
	EndpointNowhere     = "endpoint-nowhere"     // no host has the address
	EndpointNoAPI       = "endpoint-no-api"      // the balancer reaches no API server
	EndpointAPIServer   = "endpoint-api-server"  // the balancer does not reach one of them
	EndpointCertificate = "endpoint-certificate" // the API server's certificate is not valid for it
)

// What to type.
const (
	followChange = "./install endpoint node"
	byHand       = "./install docs high-availability"
)

const (
	// queryTimeout limits one request to the service of this host, clusterTimeout the wait for the API server.
	// If that hangs, the part must still show what the host knows before partTimeout.
	queryTimeout   = 2 * time.Second
	clusterTimeout = 3500 * time.Millisecond
	// conflictEnded is how long after the last announcement of another host a conflict is over. That
	// host may announce the address only from time to time, so the conflict stays a warning for
	// conflictShown.
	conflictEnded, conflictShown = time.Minute, time.Hour
	// checking is how long a service that has started may know no holder, and no result of an API server.
	checking = 5 * time.Second
)

// endpointFacts are what the problems with the endpoint follow from.
type endpointFacts struct {
	now      time.Time
	role     string
	managed  bool               // Airlift installed this host
	settings *endpoint.Settings // of this host; nil if it has none
	cluster  *config.Endpoint   // nil if it is not known
	unit     systemd.UnitState
	state    *Endpoint // of the service; nil if it does not answer
	// certificate is the API server's, in the file certificateFile; nil if this host has none.
	certificate     *x509.Certificate
	certificateFile string
}

// queryEndpoint returns the state of this host's service.
func (r *Reader) queryEndpoint(ctx context.Context) (*Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	query := service.Query
	if r.query != nil {
		query = r.query
	}
	return query(ctx)
}

// endpointService is the component of a host with settings for an endpoint.
func (r *Reader) endpointService(ctx context.Context) Component {
	c := r.service(ctx, strings.TrimSuffix(endpoint.Unit, ".service"))
	if !c.Healthy {
		return c
	}
	switch state, err := r.queryEndpoint(ctx); {
	case err != nil:
		c.Healthy, c.Reason = false, oneLine(err)
	case state == nil:
		c.Healthy, c.Reason = false, "it does not answer at "+endpoint.Socket
	}
	return c
}

func (r *Reader) readEndpoint(ctx context.Context) (found result, err error) {
	if r.node.Role == node.NoNode {
		return found, nil
	}
	f := endpointFacts{now: time.Now(), role: r.node.Role, managed: r.Host.Records().Manages()}
	if f.settings, err = endpoint.Read(r.Host); err != nil {
		return found, err
	}
	late, cluster := time.After(clusterTimeout), make(chan *config.Endpoint, 1)
	go func() { cluster <- r.clusterEndpoint(ctx) }()
	var wg sync.WaitGroup
	if f.settings != nil {
		wg.Go(func() { f.unit, _ = r.Host.Systemd().Unit(ctx, endpoint.Unit) }) // the component has the error
		wg.Go(func() { f.state, _ = r.queryEndpoint(ctx) })
		f.readCertificate(r)
	}
	wg.Wait()
	select {
	case f.cluster = <-cluster:
	case <-late:
	}
	if f.settings != nil {
		found.set = func(s *Status) { s.Endpoint = cmp.Or(f.state, &Endpoint{}) }
	}
	f.judge(&found)
	return found, nil
}

// clusterEndpoint returns what the cluster stores about its endpoint; nil if the API server does not answer,
// which is a problem of another part.
func (r *Reader) clusterEndpoint(ctx context.Context) *config.Endpoint {
	client, err := r.api()
	if err != nil {
		return nil
	}
	e, err := client.Endpoint(ctx)
	if err != nil {
		return nil
	}
	return &e
}

// readCertificate reads the certificate of this host's API server.
func (f *endpointFacts) readCertificate(r *Reader) {
	api := r.node.Pod("kube-apiserver")
	if api == nil || api.Err != nil {
		return
	}
	f.certificateFile = cmp.Or(api.Flags["tls-cert-file"], path.Join(f.settings.CertificatesDir, "apiserver.crt"))
	data, err := os.ReadFile(r.Host.Path(f.certificateFile))
	if err != nil {
		return // the part certificates reports it
	}
	if certs, err := pki.ParseCertificates(data); err == nil {
		f.certificate = certs[0]
	}
}

// judge adds the problems, causes first.
func (f *endpointFacts) judge(found *result) {
	f.judgeSettings(found)
	if f.settings == nil {
		return
	}
	if f.unit.Load == "loaded" && !f.unit.Enabled {
		found.warn("systemctl enable "+endpoint.Unit, "%s does not start at the next boot", endpoint.Unit).Name = EndpointDisabled
	}
	f.judgeCertificate(found)
	if f.state == nil {
		return
	}
	if v := f.state.VIP; v != nil {
		f.judgeAddress(found, v)
	}
	if b := f.state.Balancer; b != nil {
		f.judgeBalancer(found, b)
	}
}

// judgeSettings compares this host with what the cluster stores. A worker has no part in the virtual address.
func (f *endpointFacts) judgeSettings(found *result) {
	if f.cluster == nil {
		return
	}
	var have, want config.Endpoint
	if f.settings != nil {
		have = f.settings.Endpoint()
	}
	want.Balancer = f.cluster.Balancer
	if f.role == node.ControlPlane {
		want.VIPs = f.cluster.VIPs
	}
	if describe(have) == describe(want) {
		return
	}
	add, fix := found.problem, followChange
	switch {
	case !f.managed:
		add, fix = found.warn, byHand // the processes of a node of kubeadm may use the virtual address without a service
	case f.changed():
		add = found.warn // until then, the former endpoint works
	}
	if f.settings == nil {
		add(fix, "the cluster has %s, but this host does not run %s: it has no %s", describe(want), endpoint.Unit, endpoint.SettingsPath).Name = EndpointMissing
		return
	}
	add(fix, "this host has %s (%s), but the cluster has %s (ConfigMap kube-system/%s)", describe(have), endpoint.SettingsPath, describe(want), config.EndpointConfigMap).Name = EndpointSettings
}

// changed reports whether the cluster has another endpoint than its first one, so that its nodes may still follow.
func (f *endpointFacts) changed() bool { return f.cluster != nil && f.cluster.Change != nil }

// describe describes an endpoint for people.
func describe(e config.Endpoint) string {
	var parts []string
	for _, a := range e.Addresses() { // the same address may be written differently
		parts = append(parts, "the virtual address "+a.String())
	}
	if e.Balancer {
		parts = append(parts, "a balancer on each node")
	}
	return cmp.Or(strings.Join(parts, " and "), "no virtual address and no balancer")
}

func (f *endpointFacts) judgeCertificate(found *result) {
	if f.certificate == nil {
		return
	}
	var names, missing []string
	for _, a := range f.settings.VIPs {
		names = append(names, a.String())
	}
	if name, _, err := net.SplitHostPort(f.settings.Balancer); err == nil {
		names = append(names, name)
	}
	for _, name := range names {
		if f.certificate.VerifyHostname(name) != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		found.problem(followChange, "the API server's certificate, %s, is not valid for %s", f.certificateFile, strings.Join(missing, " and ")).Name = EndpointCertificate
	}
}

// judgeAddress adds the problems with the virtual addresses.
func (f *endpointFacts) judgeAddress(found *result, v *vip.Status) {
	addresses, holders := join(v.Addresses), v.Lasting(f.now)
	switch {
	case v.Interface == "" && f.now.Sub(f.unit.Since) > checking: // so this host does not see holders either
		found.problem("ip address; give an interface of this host an address in the subnet of the virtual address", "%s", v.Reason).Name = EndpointInterface
	case len(holders) > 1:
		found.problem(FindHosts(holders[0].MAC, holders[1].MAC), "the virtual address %s is %s at the same time", addresses, v.Where(f.now)).Name = EndpointConflict
	case len(holders) == 0 && f.now.Sub(f.unit.Since) > checking:
		found.problem("on each control plane: ./install endpoint status; ./install status", "this host sees no control plane with the virtual address %s, and does not have it itself: %s", addresses, v.Reason).Name = EndpointNowhere
	}
	if c := v.Conflict; c != nil && f.now.Sub(c.Time) < conflictShown {
		add := found.problem
		if f.now.Sub(c.Time) > conflictEnded {
			add = found.warn
		}
		add(FindHosts(c.MAC), "another host, with the hardware address %s, announced the virtual address %s at %s, while this host had it",
			c.MAC, c.Address, c.Time.Format(time.DateTime)).Name = EndpointConflict
	}
}

// FindHosts is what to type to find hosts by their hardware addresses.
func FindHosts(macs ...string) string {
	return "ip neighbour | grep -e " + strings.Join(macs, " -e ") + "; on that host, find the address and remove it: ip address"
}

// judgeBalancer adds the API servers that the balancer does not reach. They are a problem of this host only
// if there is no other one.
func (f *endpointFacts) judgeBalancer(found *result, b *balancer.Status) {
	var ready int
	var lost []balancer.BackendStatus
	for _, s := range b.Backends {
		switch {
		case s.State == balancer.Ready:
			ready++
		case s.State != balancer.Unknown || f.now.Sub(s.Since) > checking:
			lost = append(lost, s)
		}
	}
	if ready == 0 && (len(lost) > 0 || len(b.Backends) == 0) {
		found.problem("on each control plane: ./install status", "the balancer at %s reaches none of %d API servers", join(b.Listen), len(b.Backends)).Name = EndpointNoAPI
	}
	for _, s := range lost {
		found.warn(reachAPI(s), "the balancer does not reach the API server at %s (%s for %s): %s", s.Address, s.State, days(f.now.Sub(s.Since)), s.Error).Name = EndpointAPIServer
	}
}

// unreachable are errors of a check, with what to type. The first one in the table that matches counts. HOST
// and PORT are the API server's.
var unreachable = []struct {
	message *regexp.Regexp
	fix     string
}{
	{regexp.MustCompile(`connection refused`), "on the host HOST: ./install status; no process listens on TCP PORT there, or a firewall rejects it"},
	{regexp.MustCompile(`no answer within|timeout|deadline exceeded|no route to host|unreachable`), "check that the host HOST is on; there, find out whether a firewall drops TCP PORT: ./install doctor"},
	{regexp.MustCompile(`x509|certificate`), "on the host HOST: ./install certs check-expiration; compare its CA with this host's: sha256sum /etc/kubernetes/pki/ca.crt"},
}

// reachAPI is what to type about an API server that a balancer does not reach.
func reachAPI(s balancer.BackendStatus) string {
	place := strings.NewReplacer("HOST", s.Address.Addr().String(), "PORT", fmt.Sprint(s.Address.Port()))
	for _, u := range unreachable {
		if u.message.MatchString(s.Error) {
			return place.Replace(u.fix)
		}
	}
	return place.Replace("on the host HOST: ./install status")
}

func join[T fmt.Stringer](list []T) string {
	var texts []string
	for _, one := range list {
		texts = append(texts, one.String())
	}
	return strings.Join(texts, " and ")
}

// endpoint describes the endpoint in one line.
func (s *Status) endpoint() string {
	var parts []string
	if v := s.Endpoint.VIP; v != nil {
		text := join(v.Addresses) + " " + v.Where(s.now)
		if holders := v.Lasting(s.now); len(holders) == 1 {
			text += " for " + days(s.now.Sub(holders[0].Since))
		}
		parts = append(parts, text)
	}
	if b := s.Endpoint.Balancer; b != nil {
		var servers []string
		for _, one := range b.Backends {
			servers = append(servers, fmt.Sprintf("%s %s", one.Address, one.State))
		}
		parts = append(parts, "balancer "+join(b.Listen)+" to "+cmp.Or(strings.Join(servers, ", "), "no API server"))
	}
	return cmp.Or(strings.Join(parts, "; "), "unknown: "+endpoint.Unit+" does not answer")
}
