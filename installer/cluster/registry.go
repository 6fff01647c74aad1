package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
)

// pageSize is how many Nodes one request reads, so that a large cluster needs little memory.
const pageSize = 200

// IsBootstrapToken reports whether text has the form of a bootstrap token.
func IsBootstrapToken(text string) bool { return bootstraputil.IsValidBootstrapToken(text) }

// FollowNodes passes use the names of all Nodes, sorted, now and after each change, until ctx ends. It retries what
// fails, after it has passed failed the error.
func (i *Identity) FollowNodes(ctx context.Context, use func([]string), failed func(error)) {
	names := map[string]bool{}
	pass := func() { use(slices.Sorted(maps.Keys(names))) }
	i.follow(ctx, followed{
		what: "the names of the nodes",
		list: func(ctx context.Context, c *Client) (version string, err error) {
			listed, version, err := listNodeNames(ctx, c)
			if err == nil {
				names = listed
				pass()
			}
			return version, err
		},
		watch: func(ctx context.Context, c *Client, options metav1.ListOptions) (watch.Interface, error) {
			return c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("nodes")).Watch(ctx, options)
		},
		take: func(event watch.Event) {
			node, ok := event.Object.(*metav1.PartialObjectMetadata)
			switch {
			case !ok || event.Type == watch.Modified || event.Type == watch.Bookmark:
				return
			case event.Type == watch.Deleted:
				delete(names, node.Name)
			default:
				names[node.Name] = true
			}
			pass()
		},
	}, failed)
}

// listNodeNames reads the names of all Nodes, page by page. version is where a watch begins.
func listNodeNames(ctx context.Context, c *Client) (names map[string]bool, version string, err error) {
	names = map[string]bool{}
	nodes := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := nodes.List(ctx, options)
		if err != nil {
			return nil, "", err
		}
		for _, node := range page.Items {
			names[node.Name] = true
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return names, page.ResourceVersion, nil
		}
	}
}

// NodeExists reports whether there is a Node with a name.
func (i *Identity) NodeExists(ctx context.Context, name string) (bool, error) {
	c, _, err := i.load()
	if err == nil {
		_, err = c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("nodes")).Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading node %q: %w", name, err)
	}
	return true, nil
}

// ReviewToken reports whether the API server accepts a bootstrap token. The error never has the token.
func (i *Identity) ReviewToken(ctx context.Context, token string) (valid bool, err error) {
	c, _, err := i.load()
	if err != nil {
		return false, err
	}
	review, err := c.API.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("checking a bootstrap token: %w", err)
	}
	user := review.Status.User.Username
	return review.Status.Authenticated && user == bootstrapapi.BootstrapUserPrefix+tokenID(token), nil
}

// FollowConfigMap passes use the data of a ConfigMap, nil if there is none, now and after each change, until ctx ends. It
// retries what fails, after it has passed failed the error.
func (i *Identity) FollowConfigMap(ctx context.Context, namespace, name string, use func(map[string]string), failed func(error)) {
	only := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	i.follow(ctx, followed{
		what: "ConfigMap " + namespace + "/" + name,
		list: func(ctx context.Context, c *Client) (version string, err error) {
			list, err := c.API.CoreV1().ConfigMaps(namespace).List(ctx, only)
			if err != nil {
				return "", err
			}
			var data map[string]string
			for _, m := range list.Items {
				data = m.Data
			}
			use(data)
			return list.ResourceVersion, nil
		},
		watch: func(ctx context.Context, c *Client, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = only.FieldSelector
			return c.API.CoreV1().ConfigMaps(namespace).Watch(ctx, options)
		},
		take: func(event watch.Event) {
			m, ok := event.Object.(*corev1.ConfigMap)
			switch {
			case !ok:
			case event.Type == watch.Deleted:
				use(nil)
			default:
				use(m.Data)
			}
		},
	}, failed)
}
