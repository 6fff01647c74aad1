package cluster

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"airlift/installer/cluster/wait"
)

const enforceLabel = "pod-security.kubernetes.io/enforce"

// RefusedPods are running pods of a namespace that a level of Pod Security refuses, with the reasons, as the API server gives them.
type RefusedPods struct {
	Namespace string
	Reasons   []string
}

// RefusedPods asks the API server which running pods a level would refuse, in the namespaces that have no level of their own. It changes
// nothing: a dry run of the label is answered with warnings.
func (c *Client) RefusedPods(ctx context.Context, level, version string, exempt []string) (list []RefusedPods, err error) {
	client, ok := c.API.CoreV1().RESTClient().(*rest.RESTClient)
	if !ok || client == nil {
		return nil, nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q,"%s-version":%q}}}`, enforceLabel, level, enforceLabel, version)
	err = wait.Retry(ctx, func() error {
		list = nil
		namespaces, err := c.API.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range namespaces.Items {
			if _, labelled := n.Labels[enforceLabel]; labelled || slices.Contains(exempt, n.Name) {
				continue
			}
			answer := client.Patch(types.MergePatchType).Resource("namespaces").Name(n.Name).Param("dryRun", metav1.DryRunAll).
				WarningHandler(rest.NoWarnings{}).Body(patch).Do(ctx)
			if err := answer.Error(); err != nil {
				return err
			}
			one := RefusedPods{Namespace: n.Name}
			for _, w := range answer.Warnings() {
				one.Reasons = append(one.Reasons, w.Text)
			}
			if len(one.Reasons) > 0 {
				list = append(list, one)
			}
		}
		return nil
	})
	return list, err
}
