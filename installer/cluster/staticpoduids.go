package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"airlift/installer/cluster/health"
	"airlift/installer/cluster/wait"
)

// configSource is the annotation that a kubelet gives its pods (ConfigSourceAnnotationKey of
// k8s.io/kubernetes/pkg/kubelet/types). For a static pod it is "file".
const configSource = "kubernetes.io/config.source"

// WaitForStaticPodUIDs is StaticPodUIDs, when the kubelet knows all of the components.
func (c *Client) WaitForStaticPodUIDs(ctx context.Context, node string, components []string, timeout time.Duration, report wait.Report) (uids map[string]string, err error) {
	w := wait.For{What: "the kubelet to read the manifests of the static pods", Short: "the static pods", Hint: health.KubeletHint, Timeout: timeout, Attempt: 10 * time.Second, Report: report}
	err = w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		if uids, err = c.StaticPodUIDs(ctx, node); err != nil {
			return false, err.Error(), nil
		}
		for _, name := range components {
			if uids[name] == "" {
				return false, "it has not read the manifest of " + name, nil
			}
		}
		return true, "", nil
	})
	return uids, err
}

// StaticPodUIDs asks a node's kubelet, through the API server, for the UIDs of its static pods by the names of
// components. The UID is a hash of the pod as this kubelet reads its manifest.
func (c *Client) StaticPodUIDs(ctx context.Context, node string) (map[string]string, error) {
	data, err := c.API.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("pods").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return staticPodUIDs(data, node)
}

func staticPodUIDs(podList []byte, node string) (map[string]string, error) {
	var list corev1.PodList
	if err := json.Unmarshal(podList, &list); err != nil {
		return nil, fmt.Errorf("reading the pods of the kubelet of %s: %w", node, err)
	}
	uids := map[string]string{}
	for _, pod := range list.Items {
		if pod.Annotations[configSource] == "file" && pod.Namespace == "kube-system" {
			uids[strings.TrimSuffix(pod.Name, "-"+node)] = string(pod.UID)
		}
	}
	return uids, nil
}
