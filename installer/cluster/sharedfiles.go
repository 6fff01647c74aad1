package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"airlift/installer/config"
	"airlift/installer/reconfiguration"
	"airlift/internal/fault"
)

// SharedFiles returns the files that the cluster keeps for all control planes, because flags of their components name them: none
// if it keeps none. saKey returns the file sa.key of the control planes, with which they are encrypted.
func SharedFiles(ctx context.Context, api kubernetes.Interface, saKey func() ([]byte, error)) (files []reconfiguration.File, err error) {
	secret, err := api.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, config.FilesSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s/%s: %w", metav1.NamespaceSystem, config.FilesSecret, err)
	}
	key, err := saKey()
	if err == nil {
		files, err = reconfiguration.Open(key, secret.Data[config.FilesKey])
	}
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("reading Secret %s/%s: %w", metav1.NamespaceSystem, config.FilesSecret, err), fault.Preflight,
			"it has the files that control planes share; to write it again, delete it, and give all files: ./install reconfigure --config FILE --file PATH=FILE …")
	}
	return files, nil
}
