"""The two PartiQL writes that the worker makes, on moto's tables: moto parses neither."""

import re
from typing import Any

from botocore.exceptions import ClientError

_INSERT = re.compile(r'INSERT INTO "(\w+)" VALUE \{(.+)\}')
_UPDATE = re.compile(r'UPDATE "(\w+)" ((?:SET "\w+" = \? )+)WHERE "id" = \? AND "owner" = \?')


def batch_execute_statement(client: Any, statements: list[dict[str, Any]]) -> dict[str, Any]:
    """As DynamoDB: at most 25, each for itself; an error is its statement's answer."""
    assert 1 <= len(statements) <= 25
    return {"Responses": [_execute(client, **statement) for statement in statements]}


def _execute(client: Any, Statement: str, Parameters: list[Any]) -> dict[str, Any]:  # noqa: N803
    try:
        if insert := _INSERT.fullmatch(Statement):
            _insert(client, insert, Parameters)
            return {"TableName": insert[1]}
        update = _UPDATE.fullmatch(Statement)
        assert update, Statement
        _update(client, update, Parameters)
        return {"TableName": update[1]}
    except ClientError as error:
        code = error.response["Error"]["Code"].removesuffix("Exception")
        if code == "ConditionalCheckFailed" and Statement.startswith("INSERT"):
            code = "DuplicateItem"
        return {"Error": {"Code": code}}


def _insert(client: Any, match: re.Match[str], parameters: list[Any]) -> None:
    names = re.findall(r"'(\w+)': \?", match[2])
    assert len(names) == len(parameters)
    client.put_item(
        TableName=match[1],
        Item=dict(zip(names, parameters, strict=True)),
        ConditionExpression="attribute_not_exists(id)",
    )


def _update(client: Any, match: re.Match[str], parameters: list[Any]) -> None:
    names = re.findall(r'SET "(\w+)" = \?', match[2])
    *values, id_, owner = parameters
    assert len(names) == len(values)
    client.update_item(
        TableName=match[1],
        Key={"id": id_},
        UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in names),
        ConditionExpression="#owner = :owner",
        ExpressionAttributeNames={f"#{name}": name for name in (*names, "owner")},
        ExpressionAttributeValues={
            ":owner": owner,
            **{f":{name}": value for name, value in zip(names, values, strict=True)},
        },
    )
