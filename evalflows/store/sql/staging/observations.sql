-- one row per trace_id, span_id: one observation of a trace: its columns, then the fields that its attributes have under any known name
select * exclude (spoken) replace (resource::json as resource, attributes::json as attributes, contents::json as contents,
                  events::json as events, links::json as links),
       case when kind = 'log' then 'event'
            else observation_type(attribute_type(source, attributes, contents, resource, spoken)) end as type,
       case when ended_at >= started_at then epoch_us(ended_at - started_at) / 1e6 end as latency_s,
       captured(attribute_input(source, attributes, contents, resource, spoken), source, attributes) as input,
       captured(attribute_output(source, attributes, contents, resource, spoken), source, attributes) as output,
       attribute_model(source, attributes, contents, resource, spoken) as model,
       attribute_provider(source, attributes, contents, resource, spoken) as provider,
       plausible('tokens_in', try_cast(attribute_tokens_in(source, attributes, contents, resource, spoken) as bigint)) as tokens_in,
       plausible('tokens_out', try_cast(attribute_tokens_out(source, attributes, contents, resource, spoken) as bigint)) as tokens_out,
       plausible('cost_usd', try_cast(attribute_cost_usd(source, attributes, contents, resource, spoken) as double)) as cost_usd,
       implausible(source, attributes, contents, resource, spoken) as implausible,
       attribute_session_id(source, attributes, contents, resource, spoken) as session_id,
       attribute_user_id(source, attributes, contents, resource, spoken) as user_id,
       list_of_tags(attribute_tags(source, attributes, contents, resource, spoken)) as tags,
       attribute_version(source, attributes, contents, resource, spoken) as version,
       attribute_environment(source, attributes, contents, resource, spoken) as environment,
       attribute_service(source, attributes, contents, resource, spoken) as service,
       attribute_trace_name(source, attributes, contents, resource, spoken) as trace_name,
       attribute_tool_name(source, attributes, contents, resource, spoken) as tool_name
from (
    -- Messages may have come as log records of their span, which are rows too, of its day or of the next three hours;
    -- the day lets a filter skip files of both
    select o.*, coalesce(records.events, o.events) as spoken
    from source.observations o
    left join (
        select day, trace_id, parent_id as span_id,
               to_json(list({'name': name, 'attributes': json_merge_patch(attributes::json, coalesce(contents, '{}')::json)}
                            order by started_at, span_id))::varchar as events
        from (
            select * from source.observations where kind = 'log'
            union all
            select * replace (strftime(day::date - 1, '%Y-%m-%d') as day)
            from source.observations where kind = 'log' and epoch(started_at) % 86400 < 3 * 3600
        )
        group by all
    ) records using (day, trace_id, span_id)
)
