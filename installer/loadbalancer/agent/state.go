package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"airlift/installer/loadbalancer"
)

// A State is what the cluster knows of the add-on, for people and for tests of the cluster.
type State struct {
	// Pools are nil if there is no ConfigMap, or if it is refused.
	Pools loadbalancer.Pools
	// Refused is why the ConfigMap with the pools is refused.
	Refused error
	// Damaged is why the assignments cannot be read: then no node decides.
	Damaged error
	// Renewal changes with each renewal of the Lease of the node that decides. It begins with the name of the node.
	Renewal string
	Table   loadbalancer.Table
	// Subnets are the subnets of each node that runs the add-on.
	Subnets map[string][]netip.Prefix
	// Conflicts are addresses that other hosts have, by their hardware addresses.
	Conflicts map[netip.Addr]string
	// Services are those that the add-on serves.
	Services []ServiceState
}

// A ServiceState is a Service that the add-on serves.
type ServiceState struct {
	Name      string // namespace/name
	Created   time.Time
	Addresses []netip.Addr // in its status
	// Problem is why it has no address, or not one of each family; "" if it can have one.
	Problem string
}

// ReadState reads the state of the add-on; nil if the cluster does not have it. It decides about addresses as the node does that decides.
func ReadState(ctx context.Context, api kubernetes.Interface) (*State, error) {
	_, err := api.AppsV1().DaemonSets(Namespace).Get(ctx, Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the add-on load-balancer: %w", err)
	}
	leases, err := api.CoordinationV1().Leases(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the Leases of the load balancer: %w", err)
	}
	s := &State{Subnets: map[string][]netip.Prefix{}, Conflicts: map[netip.Addr]string{}}
	records := map[string]record{}
	var subnets []netip.Prefix
	var names []string
	for _, lease := range leases.Items {
		name, ofNode := strings.CutPrefix(lease.Name, nodePrefix)
		switch {
		case lease.Name == tableName:
			s.Renewal = ptr.Deref(lease.Spec.HolderIdentity, "") + " " + renewTime(&lease)
			s.Table, s.Damaged = tableOf(&lease)
		case ofNode:
			names = append(names, name)
			var r record
			if json.Unmarshal([]byte(lease.Annotations[nodeKey]), &r) == nil && !r.Gone { // otherwise the node announces nothing
				records[name], s.Subnets[name] = r, r.Subnets
				subnets = append(subnets, r.Subnets...)
			}
		}
	}
	for _, e := range s.Table.Entries {
		if mac, err := net.ParseMAC(records[e.Node].Conflicts[e.Address]); err == nil { // people type it in a command
			s.Conflicts[e.Address] = mac.String()
		}
	}
	nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	cluster, err := readRanges(ctx, api)
	if err != nil {
		return nil, err
	}
	cm, err := api.CoreV1().ConfigMaps(Namespace).Get(ctx, PoolsName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		cm, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the pools of the load balancer: %w", err)
	}
	var exists bool
	taken := takenBy(pointers(nodes.Items), subnets, cluster)
	s.Pools, exists, s.Refused = poolsOf(cm, taken)
	services, err := api.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing Services: %w", err)
	}
	balanced := slices.DeleteFunc(pointers(services.Items), func(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeLoadBalancer })
	decisions := decisionsOf(balanced, s.Table, s.Pools, exists, s.Refused, taken)
	limit(decisions, s.Table, names)
	for _, d := range decisions {
		one := ServiceState{Name: d.Name, Created: d.Created, Problem: d.Problem}
		for _, i := range d.object.Status.LoadBalancer.Ingress {
			if a, err := netip.ParseAddr(i.IP); err == nil {
				one.Addresses = append(one.Addresses, a)
			}
		}
		s.Services = append(s.Services, one)
	}
	return s, nil
}

func pointers[T any](list []T) (out []*T) {
	for i := range list {
		out = append(out, &list[i])
	}
	return out
}
