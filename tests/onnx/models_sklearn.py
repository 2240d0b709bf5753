"""Models of scikit-learn, fitted to made-up data and exported by skl2onnx."""

import functools

import numpy as np

NEEDS = ("sklearn", "skl2onnx")


def data(classes=0, features=6, rows=120):
    """Rows of features and their targets: numbers, or classes 0 .. classes - 1."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(rows, features)).astype(np.float32)
    score = x @ rng.normal(size=features) + np.sin(2 * x[:, 0])
    if classes == 0:
        return x, score.astype(np.float32)
    bounds = np.quantile(score, np.arange(1, classes) / classes)
    return x, np.searchsorted(bounds, score).astype(np.int64)


def export(estimator, x, y, opset=None, **options):
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType

    estimator.fit(x, y)
    model = skl2onnx.convert_sklearn(
        estimator,
        initial_types=[("x", FloatTensorType([None, x.shape[1]]))],
        options={id(estimator): options} if options else None,
        target_opset=opset,
    )
    # What the trees were fitted to lies on no threshold, but near one.
    inputs = np.random.default_rng(8).normal(size=(16, x.shape[1])).astype(np.float32)
    return model, [inputs]


def of_classes(make, classes=3, **options):
    return lambda: export(make(), *data(classes), **options)


def of_numbers(make, **options):
    return lambda: export(make(), *data(), **options)


def with_gaps():
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    x, y = data(2)
    x[::7, 2] = np.nan
    model, inputs = export(make_pipeline(SimpleImputer(), LogisticRegression()), x, y)
    inputs[0][::3, 2] = np.nan
    return model, inputs


def of_categories():
    """Three columns of numbers and two of categories."""
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    x, y = data(2, features=5)
    rng = np.random.default_rng(9)
    x[:, 3], x[:, 4] = rng.integers(0, 4, len(x)), rng.integers(5, 8, len(x))
    encoder = OneHotEncoder(handle_unknown="ignore", categories=[[0, 1, 2, 3], [5, 6, 7]])
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), [0, 1, 2]), ("categories", encoder, [3, 4])]
    )
    model, _ = export(make_pipeline(columns, LogisticRegression()), x, y)
    return model, [x[:16]]


def models():
    from sklearn import cluster, decomposition, ensemble, linear_model, naive_bayes, neighbors
    from sklearn import neural_network, pipeline, preprocessing, svm, tree

    part, seeded = functools.partial, {"random_state": 0}
    logistic, plain = linear_model.LogisticRegression, {"zipmap": False}
    yield "skl_linear", of_numbers(linear_model.LinearRegression)
    yield "skl_ridge", of_numbers(linear_model.Ridge)
    yield "skl_logistic2_zipmap", of_classes(logistic, 2)
    yield "skl_logistic3_zipmap", of_classes(logistic)
    yield "skl_logistic2", of_classes(logistic, 2, **plain)
    yield "skl_logistic3", of_classes(logistic, **plain)
    yield "skl_sgd", of_classes(part(linear_model.SGDClassifier, **seeded), **plain)
    scaled = lambda: pipeline.make_pipeline(preprocessing.StandardScaler(), logistic())
    yield "skl_scaler_logistic", of_classes(scaled)
    ranged = lambda: pipeline.make_pipeline(preprocessing.MinMaxScaler(), linear_model.Lasso(0.01))
    yield "skl_minmax_lasso", of_numbers(ranged)
    normed = lambda: pipeline.make_pipeline(preprocessing.Normalizer(), logistic())
    yield "skl_normalizer", of_classes(normed)
    powers = lambda: pipeline.make_pipeline(
        preprocessing.PolynomialFeatures(2), linear_model.Ridge())
    yield "skl_polynomial", of_numbers(powers)
    reduced = lambda: pipeline.make_pipeline(decomposition.PCA(3), logistic())
    yield "skl_pca", of_classes(reduced)
    yield "skl_imputer", with_gaps
    yield "skl_categories", of_categories
    trees = {"n_estimators": 12, "max_depth": 6, **seeded}
    yield "skl_tree2", of_classes(part(tree.DecisionTreeClassifier, max_depth=5), 2, **plain)
    yield "skl_tree3_zipmap", of_classes(part(tree.DecisionTreeClassifier, max_depth=5))
    yield "skl_tree_numbers", of_numbers(part(tree.DecisionTreeRegressor, max_depth=5))
    yield "skl_forest2", of_classes(part(ensemble.RandomForestClassifier, **trees), 2, **plain)
    yield "skl_forest3_zipmap", of_classes(part(ensemble.RandomForestClassifier, **trees))
    yield "skl_forest_numbers", of_numbers(part(ensemble.RandomForestRegressor, **trees))
    yield "skl_extra_trees", of_numbers(part(ensemble.ExtraTreesRegressor, **trees))
    boosting = part(ensemble.GradientBoostingClassifier, n_estimators=15, max_depth=3, **seeded)
    yield "skl_boosting2", of_classes(boosting, 2, **plain)
    yield "skl_boosting3_zipmap", of_classes(boosting)
    more = part(ensemble.GradientBoostingRegressor, n_estimators=15, max_depth=3, **seeded)
    yield "skl_boosting_numbers", of_numbers(more)
    adapted = part(ensemble.AdaBoostRegressor, n_estimators=5, **seeded)
    yield "skl_adaboost", of_numbers(adapted)
    bagged = part(ensemble.BaggingClassifier, n_estimators=4, **seeded)
    yield "skl_bagging", of_classes(bagged, **plain)
    isolation = part(ensemble.IsolationForest, n_estimators=5, **seeded)
    yield "skl_isolation", of_numbers(isolation, opset={"": 18, "ai.onnx.ml": 3})
    yield "skl_svc_rbf", of_classes(svm.SVC, **plain)
    yield "skl_svc_poly2", of_classes(part(svm.SVC, kernel="poly"), 2, **plain)
    likely = part(svm.SVC, probability=True, **seeded)
    yield "skl_svc_probability2", of_classes(likely, 2, **plain)
    yield "skl_svc_probability3", of_classes(likely, **plain)
    yield "skl_svc_linear", of_classes(svm.LinearSVC)
    yield "skl_svr_rbf", of_numbers(svm.SVR)
    yield "skl_svr_sigmoid", of_numbers(part(svm.SVR, kernel="sigmoid"))
    hidden = {"hidden_layer_sizes": (8, 8), "max_iter": 60, **seeded}
    yield "skl_mlp", of_classes(part(neural_network.MLPClassifier, **hidden))
    yield "skl_mlp_numbers", of_numbers(part(neural_network.MLPRegressor, **hidden))
    yield "skl_kmeans", of_numbers(part(cluster.KMeans, n_clusters=4, n_init=1, **seeded))
    yield "skl_bayes", of_classes(naive_bayes.GaussianNB, **plain)
    yield "skl_neighbors", of_classes(neighbors.KNeighborsClassifier, **plain)
    yield "skl_neighbors_numbers", of_numbers(neighbors.KNeighborsRegressor)
