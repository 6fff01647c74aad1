package model

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// An apiServer is the process of an API server.
type apiServer struct {
	host    *Host
	version string
	etcd    []string // URLs
	ready   time.Time
	server  *http.Server
	policy  string // the audit policy and the encryption with which it runs
	// kubeletCA is the CA with which it verifies kubelets, "" if it does not.
	kubeletCA string
}

type connKey struct{}

// startAPIServer starts an API server with the flags of its pod. The caller holds w.mu.
func (h *Host) startAPIServer(p *pod, version string) (process, error) {
	f, w := p.flags, h.world
	config, err := h.serverTLS(f["tls-cert-file"], f["tls-private-key-file"], f["client-ca-file"], false)
	if err != nil {
		return nil, err
	}
	s := &apiServer{host: h, version: version, etcd: strings.Split(f["etcd-servers"], ","), ready: time.Now().Add(2 * time.Second)}
	if s.policy, err = h.readPolicy(p); err != nil {
		return nil, err
	}
	if s.data() == nil {
		return nil, errors.New("etcd does not answer")
	}
	s.server = &http.Server{Handler: s, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		if t, ok := c.(*tls.Conn); ok {
			c = t.NetConn()
		}
		return context.WithValue(ctx, connKey{}, c)
	}, ErrorLog: quiet}
	for _, address := range []string{net.JoinHostPort(f["advertise-address"], f["secure-port"]), net.JoinHostPort("127.0.0.1", f["secure-port"])} {
		l := w.listen(h.address("tcp", address))
		w.done.Go(func() { _ = s.server.Serve(tls.NewListener(l, config)) })
	}
	s.bootstrap()
	if s.kubeletCA = h.read(f["kubelet-certificate-authority"]); s.kubeletCA != "" && !h.verified {
		if why := w.distrusts(s, s.data(), func(o *Host) bool { return time.Since(o.port.since) > time.Minute }); why != "" {
			w.violateLocked("an API server begins to verify kubelets: %s", why)
		}
	}
	h.verified = s.kubeletCA != ""
	return s, nil
}

// data returns the cluster's data; nil if etcd does not answer. The caller holds w.mu.
func (s *apiServer) data() *etcdCluster {
	for _, address := range s.etcd {
		u, err := url.Parse(address)
		if err != nil || s.host.world.listeners[s.host.address("tcp", u.Host)] == nil {
			continue
		}
		for _, c := range s.host.world.clusters {
			for _, m := range c.members {
				on := m.server
				if on != nil && !m.learner && c.quorum() && (on.host == s.host || strings.Contains(address, on.host.IP)) {
					return c
				}
			}
		}
	}
	return nil
}

// bootstrap creates what an API server creates by itself.
func (s *apiServer) bootstrap() {
	c := s.data()
	for _, ns := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		key := "namespaces/" + ns
		if c.data[key] == "" {
			c.store(key, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns}})
		}
	}
	if c.data["configmaps/kube-system/extension-apiserver-authentication"] == "" {
		c.store("configmaps/kube-system/extension-apiserver-authentication", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "extension-apiserver-authentication", "namespace": "kube-system"}, "data": map[string]any{}})
	}
	if c.data["services/default/kubernetes"] == "" {
		c.store("services/default/kubernetes", map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "kubernetes", "namespace": "default"}, "spec": map[string]any{"clusterIP": "10.96.0.1"}})
	}
}

func (s *apiServer) healthy() error {
	s.host.world.mu.Lock()
	defer s.host.world.mu.Unlock()
	if s.data() == nil {
		return errors.New("etcd does not answer")
	}
	if time.Now().Before(s.ready) {
		return errors.New("starting")
	}
	return nil
}

func (s *apiServer) end() {
	_ = s.server.Close()
}

// object returns an object, nil if there is none.
func (c *etcdCluster) object(key string) map[string]any {
	text, ok := c.data[key]
	if !ok {
		return nil
	}
	var o map[string]any
	if err := utiljson.Unmarshal([]byte(plainText(text)), &o); err != nil {
		panic(err)
	}
	return o
}

// changes begins a change of an object.
func (c *etcdCluster) changes(key string) {
	c.revision++
	if !strings.HasPrefix(key, "leases/") && !strings.HasPrefix(key, "events/") {
		c.changed = c.revision
	}
}

// remove removes an object. With a namespace, all objects in it go.
func (c *etcdCluster) remove(key string) {
	if c.data[key] == "" {
		return
	}
	c.changes(key)
	c.removed[key] = removed{c.revision, c.data[key]}
	delete(c.data, key)
	if namespace, ok := strings.CutPrefix(key, "namespaces/"); ok {
		for _, other := range slices.Sorted(maps.Keys(c.data)) {
			if parts := strings.Split(other, "/"); len(parts) == 3 && parts[1] == namespace {
				c.remove(other)
			}
		}
	}
}

// store creates or replaces an object, and returns it as stored.
func (c *etcdCluster) store(key string, o map[string]any) map[string]any {
	c.changes(key)
	u := &unstructured.Unstructured{Object: o}
	before := c.object(key)
	if before == nil {
		u.SetUID(uid(c.id, c.revision))
		if _, ok, _ := unstructured.NestedString(o, "metadata", "creationTimestamp"); !ok {
			unstructured.SetNestedField(o, time.Now().UTC().Format(time.RFC3339), "metadata", "creationTimestamp")
		}
		u.SetGeneration(1)
	} else {
		old := &unstructured.Unstructured{Object: before}
		u.SetUID(old.GetUID())
		unstructured.SetNestedField(o, old.GetCreationTimestamp().UTC().Format(time.RFC3339), "metadata", "creationTimestamp")
		if fmt.Sprint(before["spec"]) != fmt.Sprint(o["spec"]) {
			u.SetGeneration(old.GetGeneration() + 1)
		}
	}
	u.SetResourceVersion(strconv.FormatInt(c.revision, 10))
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	c.data[key] = string(text)
	return c.object(key)
}

// A request names what a request is for.
type request struct {
	group, version, resource, namespace, name, subresource string
}

// parseRequest reads the path of a request; ok is false if it is for no resource.
func parseRequest(path string) (q request, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		q.version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		q.group, q.version, parts = parts[1], parts[2], parts[3:]
	default:
		return q, false
	}
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" && parts[2] != "finalize" {
		q.namespace, parts = parts[1], parts[2:]
	}
	q.resource = parts[0]
	if len(parts) > 1 {
		q.name = parts[1]
	}
	if len(parts) > 2 {
		q.subresource = parts[2]
	}
	return q, true
}

func (q request) prefix() string {
	p := q.resource + "/"
	if q.group != "" && !strings.HasSuffix(q.group, ".k8s.io") && q.group != "apps" && q.group != "policy" && q.group != "batch" {
		p = q.group + "/" + p
	}
	if q.namespace != "" {
		p += q.namespace + "/"
	}
	return p
}

func (q request) key() string { return q.prefix() + q.name }

// kind returns the kind of a resource of Kubernetes.
func (q request) kind() string {
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if gvk.Group == q.group && gvk.Version == q.version && plural(gvk.Kind) == q.resource {
			return gvk.Kind
		}
	}
	return ""
}

func plural(kind string) string {
	k := strings.ToLower(kind)
	switch {
	case strings.HasSuffix(k, "s"), strings.HasSuffix(k, "x"), strings.HasSuffix(k, "ch"):
		if k == "endpoints" {
			return k
		}
		return k + "es"
	case strings.HasSuffix(k, "y"):
		return k[:len(k)-1] + "ies"
	}
	return k + "s"
}

// user returns the name and the groups of the client of a request.
func (s *apiServer) user(r *http.Request, c *etcdCluster) (name string, groups []string, err error) {
	if len(r.TLS.PeerCertificates) > 0 {
		cert := r.TLS.PeerCertificates[0]
		return cert.Subject.CommonName, cert.Subject.Organization, nil
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		if account, ok := strings.CutPrefix(token, podToken); ok { // of a ServiceAccount
			if c.data["serviceaccounts/"+account] == "" {
				return "", nil, apierrors.NewUnauthorized("the ServiceAccount does not exist")
			}
			return "system:serviceaccount:" + strings.ReplaceAll(account, "/", ":"), nil, nil
		}
		id, secret, _ := strings.Cut(token, ".")
		o := c.object("secrets/kube-system/bootstrap-token-" + id)
		value := func(key string) string {
			text, _, _ := unstructured.NestedString(o, "data", key)
			return fromBase64(text)
		}
		if o == nil || value("token-secret") != secret {
			return "", nil, apierrors.NewUnauthorized("the token is not valid")
		}
		if at, err := time.Parse(time.RFC3339, value("expiration")); err == nil && time.Now().After(at) {
			return "", nil, apierrors.NewUnauthorized("the token is expired")
		}
		return "system:bootstrap:" + id, []string{"system:bootstrappers"}, nil
	}
	return "system:anonymous", []string{"system:unauthenticated"}, nil
}

func (s *apiServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	status, answer := s.answer(r, body)
	if r.Context().Err() != nil {
		return
	}
	if watch, ok := answer.(watching); ok {
		watch(rw, r)
		return
	}
	if text, ok := answer.(string); ok {
		rw.WriteHeader(status)
		_, _ = io.WriteString(rw, text)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(answer)
}

// watching answers a watch.
type watching func(http.ResponseWriter, *http.Request)

// effectOf is effect for a request of a command.
func (w *World) effectOf(ctx context.Context, what string) error {
	r := runOf(ctx)
	if r == nil {
		return nil
	}
	return r.effect(what)
}

// runOf returns the command that sent a request, nil if it was a component.
func runOf(ctx context.Context) *run {
	c, _ := ctx.Value(connKey{}).(*conn)
	if c == nil {
		c = connOf(ctx)
	}
	if c == nil {
		return nil
	}
	return c.run
}

func (s *apiServer) answer(r *http.Request, body []byte) (int, any) {
	if r.Method != http.MethodGet {
		if err := s.host.world.effectOf(r.Context(), "api "+r.Method+" "+r.URL.Path); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	w := s.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	c := s.data()
	switch r.URL.Path {
	case "/healthz", "/livez", "/readyz":
		if c == nil || time.Now().Before(s.ready) {
			return http.StatusInternalServerError, "[-]etcd failed: reason withheld\n"
		}
		return http.StatusOK, "ok"
	case "/metrics":
		return http.StatusOK, ""
	case "/version":
		return http.StatusOK, map[string]string{"gitVersion": s.version, "major": "1", "minor": strings.Split(s.version, ".")[1]}
	}
	if c == nil {
		return failed(apierrors.NewInternalError(errors.New("etcdserver: request timed out")))
	}
	user, groups, err := s.user(r, c)
	if err != nil {
		return failed(err)
	}
	q, ok := parseRequest(r.URL.Path)
	if !ok {
		return s.discovery(r.URL.Path)
	}
	admin := slices.Contains(groups, "kubeadm:cluster-admins")
	if admin && c.data["clusterrolebindings/kubeadm:cluster-admins"] == "" || user == "system:anonymous" && q.key() != "configmaps/kube-public/cluster-info" {
		return failed(apierrors.NewForbidden(schema.GroupResource{Group: q.group, Resource: q.resource}, q.name, errors.New("no permission")))
	}
	if strings.HasPrefix(user, "system:serviceaccount:") && (c.data["clusterrolebindings/load-balancer"] == "" || c.data["rolebindings/load-balancer/load-balancer"] == "") {
		return failed(apierrors.NewForbidden(schema.GroupResource{Group: q.group, Resource: q.resource}, q.name, errors.New("no permission")))
	}
	if q.resource == "nodes" && q.subresource == "proxy" {
		return http.StatusOK, s.kubeletPods(q.name)
	}
	o, err := s.serve(c, q, r, body)
	if err != nil {
		return failed(err)
	}
	return http.StatusOK, o
}

func failed(err error) (int, any) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	o := status.Status()
	o.APIVersion, o.Kind = "v1", "Status"
	return int(o.Code), o
}

// kubeletPods is the answer of the kubelet of a node about its pods. The caller holds w.mu.
func (s *apiServer) kubeletPods(node string) any {
	items := []any{}
	for _, h := range s.host.world.hosts {
		if h.Name != node || !h.unit("kubelet.service").active {
			continue
		}
		for _, p := range h.manifests() {
			items = append(items, map[string]any{"metadata": map[string]any{
				"name": h.podName(p), "namespace": "kube-system", "uid": p.uid, "annotations": map[string]any{"kubernetes.io/config.source": "file"},
			}})
		}
	}
	return map[string]any{"apiVersion": "v1", "kind": "PodList", "items": items}
}

// discovery lists the groups of Kubernetes, or the kinds that a version of one of them has.
func (s *apiServer) discovery(path string) (int, any) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	gv := schema.GroupVersion{Version: parts[len(parts)-1]}
	switch {
	case path == "/api":
		return http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case path == "/apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
		for _, gv := range scheme.Scheme.PrioritizedVersionsAllGroups() {
			v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
			if n := len(list.Groups); n > 0 && list.Groups[n-1].Name == gv.Group {
				list.Groups[n-1].Versions = append(list.Groups[n-1].Versions, v)
			} else if gv.Group != "" {
				list.Groups = append(list.Groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
			}
		}
		return http.StatusOK, list
	case len(parts) == 2 && parts[0] == "api":
	case len(parts) == 3 && parts[0] == "apis":
		gv.Group = parts[1]
	default:
		return http.StatusNotFound, "404 page not found"
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv.String(), APIResources: []metav1.APIResource{}}
	for kind := range scheme.Scheme.KnownTypes(gv) {
		if !strings.HasSuffix(kind, "List") && !strings.HasSuffix(kind, "Options") {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: plural(kind), Kind: kind, Namespaced: !global[kind], Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}})
		}
	}
	return http.StatusOK, list
}

// global are the kinds without a namespace that objects of the model have.
var global = map[string]bool{"Namespace": true, "Node": true, "PersistentVolume": true, "ClusterRole": true, "ClusterRoleBinding": true, "PriorityClass": true, "StorageClass": true, "CertificateSigningRequest": true}

// serve answers a request for a resource. The caller holds w.mu.
func (s *apiServer) serve(c *etcdCluster, q request, r *http.Request, body []byte) (any, error) {
	missing := apierrors.NewNotFound(schema.GroupResource{Group: q.group, Resource: q.resource}, q.name)
	if q.kind() == "" && c.data["customresourcedefinitions/"+q.resource+"."+q.group] == "" {
		return nil, missing
	}
	dry := r.URL.Query().Get("dryRun") != "" || r.URL.Query().Has("dryRun")
	keep := func(key string, o map[string]any) map[string]any {
		if dry {
			return o
		}
		stored := c.store(key, o)
		if q.resource == "secrets" {
			c.data[key] = s.seal(c.data[key])
		}
		return stored
	}
	switch r.Method {
	case http.MethodGet:
		if q.name != "" {
			if o := c.object(q.key()); o != nil {
				return o, nil
			}
			return nil, missing
		}
		if r.URL.Query().Get("watch") != "" {
			return s.watch(q), nil
		}
		return c.list(q, r.URL.Query())
	case http.MethodPost:
		if q.subresource == "eviction" {
			if !dry {
				c.remove(q.key())
			}
			return map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Success"}, nil
		}
		o, err := decode(body, q)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if strings.HasSuffix(q.resource, "reviews") {
			unstructured.SetNestedField(o, true, "status", "allowed")
			return o, nil
		}
		u := &unstructured.Unstructured{Object: o}
		if u.GetName() == "" {
			u.SetName(u.GetGenerateName() + strconv.FormatInt(c.revision, 36))
		}
		if q.namespace != "" {
			u.SetNamespace(q.namespace)
			if c.data["namespaces/"+q.namespace] == "" {
				return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, q.namespace)
			}
		}
		q.name = u.GetName()
		if c.object(q.key()) != nil {
			return nil, apierrors.NewAlreadyExists(schema.GroupResource{Group: q.group, Resource: q.resource}, q.name)
		}
		return keep(q.key(), o), nil
	case http.MethodPut:
		o, err := decode(body, q)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		old := c.object(q.key())
		if old == nil {
			return nil, missing
		}
		u, is := &unstructured.Unstructured{Object: o}, &unstructured.Unstructured{Object: old}
		if v := u.GetResourceVersion(); v != "" && v != is.GetResourceVersion() {
			return nil, apierrors.NewConflict(schema.GroupResource{Group: q.group, Resource: q.resource}, q.name, errors.New("the object has been modified"))
		}
		if v := u.GetUID(); v != "" && v != is.GetUID() {
			return nil, apierrors.NewConflict(schema.GroupResource{Group: q.group, Resource: q.resource}, q.name, errors.New("another UID"))
		}
		if q.subresource == "approval" && !dry {
			s.host.world.approved(c, o)
		}
		return keep(q.key(), o), nil
	case http.MethodPatch:
		return s.patch(c, q, r, body, keep, missing)
	case http.MethodDelete:
		o := c.object(q.key())
		if o == nil {
			return nil, missing
		}
		if !dry {
			c.remove(q.key())
		}
		return o, nil
	}
	return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: q.resource}, r.Method)
}

func (s *apiServer) patch(c *etcdCluster, q request, r *http.Request, body []byte, keep func(string, map[string]any) map[string]any, missing error) (any, error) {
	old := c.object(q.key())
	contentType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if strings.HasPrefix(contentType, "application/apply-patch") {
		o, err := decode(body, q)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if old == nil {
			if q.namespace != "" && c.data["namespaces/"+q.namespace] == "" {
				return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, q.namespace)
			}
			return keep(q.key(), o), nil
		}
		if q.subresource == "status" {
			return s.applyStatus(q, r, old, o, keep)
		}
		merge(old, o)
		return keep(q.key(), old), nil
	}
	if old == nil {
		return nil, missing
	}
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch contentType {
	case "application/merge-patch+json":
		after, err = jsonpatch.MergePatch(before, body)
	case "application/json-patch+json":
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(body); err == nil {
			after, err = p.Apply(before)
		}
	default:
		var typed runtime.Object
		if typed, err = scheme.Scheme.New(schema.GroupVersionKind{Group: q.group, Version: q.version, Kind: q.kind()}); err == nil {
			after, err = strategicpatch.StrategicMergePatch(before, body, typed)
		}
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var o map[string]any
	if err := utiljson.Unmarshal(after, &o); err != nil {
		return nil, err
	}
	return keep(q.key(), o), nil
}

// applyStatus replaces the status of an object with the one that its only owner applies.
func (s *apiServer) applyStatus(q request, r *http.Request, old, o map[string]any, keep func(string, map[string]any) map[string]any) (any, error) {
	u, is := &unstructured.Unstructured{Object: o}, &unstructured.Unstructured{Object: old}
	if u.GetUID() != is.GetUID() || u.GetResourceVersion() != is.GetResourceVersion() {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: q.group, Resource: q.resource}, q.name, errors.New("the object has been modified"))
	}
	old["status"] = o["status"]
	is.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: r.URL.Query().Get("fieldManager"), Operation: metav1.ManagedFieldsOperationApply, APIVersion: q.apiVersion(), Subresource: "status"}})
	return keep(q.key(), old), nil
}

func merge(into, from map[string]any) {
	for k, v := range from {
		if a, ok := into[k].(map[string]any); ok {
			if b, ok := v.(map[string]any); ok {
				merge(a, b)
				continue
			}
		}
		into[k] = v
	}
}

// decode reads the object in a body.
func decode(body []byte, q request) (map[string]any, error) {
	typed, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(body, &schema.GroupVersionKind{Group: q.group, Version: q.version, Kind: q.kind()}, nil)
	if err != nil {
		var o map[string]any
		return o, utiljson.Unmarshal(body, &o)
	}
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, err
	}
	o["apiVersion"], o["kind"] = gvk.GroupVersion().String(), gvk.Kind
	if gvk.GroupVersion().String() == "" {
		o["apiVersion"] = gvk.Version
	}
	if s, ok := o["stringData"].(map[string]any); ok { // as the API server does
		data, _ := o["data"].(map[string]any)
		if data == nil {
			data = map[string]any{}
		}
		for k, v := range s {
			data[k] = toBase64(v.(string))
		}
		delete(o, "stringData")
		o["data"] = data
	}
	if m, ok := o["metadata"].(map[string]any); ok && m["creationTimestamp"] == nil {
		delete(m, "creationTimestamp")
	}
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	o = nil
	return o, utiljson.Unmarshal(data, &o)
}

func (c *etcdCluster) list(q request, options url.Values) (any, error) {
	selector, err := labels.Parse(options.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(c.data)) {
		if !strings.HasPrefix(key, q.prefix()) {
			continue
		}
		o := c.object(key)
		u := &unstructured.Unstructured{Object: o}
		if selector.Matches(labels.Set(u.GetLabels())) && matchesFields(o, options.Get("fieldSelector")) {
			items = append(items, o)
		}
	}
	kind := q.kind()
	if kind == "" && len(items) > 0 {
		kind = items[0].(map[string]any)["kind"].(string)
	}
	return map[string]any{"apiVersion": q.apiVersion(), "kind": kind + "List", "metadata": map[string]any{"resourceVersion": strconv.FormatInt(c.revision, 10)}, "items": items}, nil
}

func matchesFields(o map[string]any, selector string) bool {
	for f := range strings.SplitSeq(selector, ",") {
		path, want, ok := strings.Cut(f, "=")
		if !ok {
			continue
		}
		not := strings.HasSuffix(path, "!")
		is, _, _ := unstructured.NestedFieldNoCopy(o, strings.Split(strings.TrimSuffix(path, "!"), ".")...)
		if is == nil {
			is = ""
		}
		if (fmt.Sprint(is) == strings.TrimPrefix(want, "=")) == not {
			return false
		}
	}
	return true
}

// watch keeps a watch open, and sends what changes of the resource.
func (s *apiServer) watch(q request) watching {
	return func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusOK)
		w, query, out := s.host.world, r.URL.Query(), json.NewEncoder(rw)
		selector, err := labels.Parse(query.Get("labelSelector"))
		if err != nil {
			return
		}
		from, _ := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
		all := from == 0 || query.Get("sendInitialEvents") == "true"
		w.mu.Lock()
		c, seen := s.data(), map[string]string{}
		switch {
		case c == nil:
		case !all && (from > c.revision || from < c.loaded):
			_, expired := failed(apierrors.NewResourceExpired("too old resource version"))
			_ = out.Encode(map[string]any{"type": "ERROR", "object": expired})
			c = nil
		case !all:
			for key, text := range c.data {
				if strings.HasPrefix(key, q.prefix()) && versionOf(c.object(key)) <= from {
					seen[key] = text
				}
			}
			for key, gone := range c.removed {
				if strings.HasPrefix(key, q.prefix()) && c.data[key] == "" && gone.revision > from {
					seen[key] = gone.text
				}
			}
		}
		w.mu.Unlock()
		tick := time.NewTicker(watchPeriod)
		defer tick.Stop()
		for revision := int64(-1); c != nil; {
			w.mu.Lock()
			if s.data() != c {
				w.mu.Unlock()
				return
			}
			var events []any
			if revision != c.revision {
				events = c.eventsSince(q, seen, func(o map[string]any) bool {
					return selector.Matches(labels.Set((&unstructured.Unstructured{Object: o}).GetLabels())) && matchesFields(o, query.Get("fieldSelector"))
				})
				revision = c.revision
			}
			if query.Get("sendInitialEvents") == "true" && all {
				events = append(events, map[string]any{"type": "BOOKMARK", "object": map[string]any{"apiVersion": q.apiVersion(), "kind": q.kind(),
					"metadata": map[string]any{"resourceVersion": strconv.FormatInt(revision, 10), "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}}}})
			}
			all = false
			w.mu.Unlock()
			for _, e := range events {
				if out.Encode(e) != nil {
					return
				}
			}
			rw.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-w.ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// watchPeriod is how often a watch looks for changes.
const watchPeriod = 200 * time.Millisecond

func versionOf(o map[string]any) int64 {
	n, _ := strconv.ParseInt((&unstructured.Unstructured{Object: o}).GetResourceVersion(), 10, 64)
	return n
}

// eventsSince returns the events that lead from what a watch has seen to what the cluster has.
func (c *etcdCluster) eventsSince(q request, seen map[string]string, matches func(map[string]any) bool) (events []any) {
	decoded := func(text string) (o map[string]any) {
		if err := utiljson.Unmarshal([]byte(plainText(text)), &o); err != nil {
			panic(err)
		}
		return o
	}
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		if o := decoded(seen[key]); c.data[key] == "" && matches(o) {
			set(o, strconv.FormatInt(c.revision, 10), "metadata", "resourceVersion")
			events = append(events, map[string]any{"type": "DELETED", "object": o})
		}
		if c.data[key] == "" {
			delete(seen, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.data)) {
		if !strings.HasPrefix(key, q.prefix()) || seen[key] == c.data[key] {
			continue
		}
		kind, o := "ADDED", c.object(key)
		if seen[key] != "" && matches(decoded(seen[key])) {
			kind = "MODIFIED"
		}
		seen[key] = c.data[key]
		if matches(o) {
			events = append(events, map[string]any{"type": kind, "object": o})
		} else if kind == "MODIFIED" {
			events = append(events, map[string]any{"type": "DELETED", "object": o})
		}
	}
	return events
}

// apiVersion is the group and version.
func (q request) apiVersion() string {
	if q.group == "" {
		return q.version
	}
	return q.group + "/" + q.version
}
