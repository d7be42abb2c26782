# The shoot's gardener-resource-manager: it applies the shoot's ManagedResources and gets tokens for who needs access.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: gardener-resource-manager
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: gardener-resource-manager
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: cluster-admin
subjects:
- kind: ServiceAccount
  name: gardener-resource-manager
  namespace: {{.Namespace}}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: gardener-resource-manager
data:
  config.yaml: |
    apiVersion: resourcemanager.config.gardener.cloud/v1alpha1
    kind: ResourceManagerConfiguration
    sourceClientConnection:
      namespaces: [{{.Namespace}}]
    targetClientConnection:
      kubeconfig: /secrets/admin/kubeconfig
    leaderElection:
      leaderElect: false
    server:
      webhooks:
        tls:
          serverCertDir: /secrets/tls
    controllers:
      clusterID: e2e
      health:
        syncPeriod: 15s
      garbageCollector:
        enabled: true
      tokenRequestor:
        enabled: true
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: gardener-resource-manager
spec:
  strategy:
    type: Recreate
  selector:
    matchLabels: {app: gardener-resource-manager}
  template:
    metadata:
      labels: {app: gardener-resource-manager}
    spec:
      serviceAccountName: gardener-resource-manager
      terminationGracePeriodSeconds: 1
      containers:
      - name: gardener-resource-manager
        image: {{.ResourceManagerImage}}
        args: [--config=/etc/resource-manager/config.yaml]
        volumeMounts:
        - {name: config, mountPath: /etc/resource-manager, readOnly: true}
        - {name: admin, mountPath: /secrets/admin, readOnly: true}
        - {name: tls, mountPath: /secrets/tls, readOnly: true}
      volumes:
      - {name: config, configMap: {name: gardener-resource-manager}}
      - {name: admin, secret: {secretName: {{.Secrets.Admin}}}}
      - {name: tls, secret: {secretName: {{.Secrets.Server}}}}
